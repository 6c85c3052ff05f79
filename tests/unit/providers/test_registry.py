import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from spillover.providers import registry
from spillover.providers.registry import BUILT_IN, GROUP, load_providers

ROOT = Path(__file__).parents[3]
OURS = [*BUILT_IN]
GOOD = """
from msgspec import Struct
from spillover.ports.provider import ProviderKind

class Form(Struct, frozen=True, forbid_unknown_fields=True):
    region: str = "north"

class Toy(ProviderKind):
    name = "toy"
    form = Form

    def open(self, form, opening):
        raise NotImplementedError
"""
NEEDY = GOOD.replace("form = Form", 'form = Form\n    requires = {"no_such_module": "toy[cloud]"}')

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package with one provider where Python finds it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(source: str, module: str = "toy_provider", point: str = "toy = toy_provider:Toy") -> None:
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{point}\n")
        monkeypatch.delitem(__import__("sys").modules, module, raising=False)

    return put


def test_our_own_providers_are_registered_as_any_other_would_be() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"].get(GROUP, {}) == BUILT_IN
    providers = load_providers()
    assert [*providers] == OURS
    assert providers.unusable == {}
    assert all(name == kind.name for name, kind in providers.items())


def test_a_provider_of_an_installed_package_is_there_beside_ours(install: Install) -> None:
    install(GOOD)
    providers = load_providers()
    assert [*providers] == [*OURS, "toy"]
    kind = providers["toy"]
    assert not kind.missing(kind.form(), {}, Path())
    assert not kind.check(kind.form(), [])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("class Toy: pass", "TypeError: it has no name, form, notices"),
        (GOOD.replace('"toy"', '"toys"'), "ValueError: its entry point must have its name"),
        (GOOD.replace("form = Form", "form = dict"), "TypeError: its form is not a msgspec.Struct"),
        (GOOD.replace("region: str = ", "region: str #"), "TypeError: Missing required argument 'region'"),
        ("raise SystemError('it is broken\\nfor good')", "SystemError: it is broken for good"),
    ],
)
def test_one_that_cannot_be_loaded_is_named_in_one_line_and_breaks_nothing(
    install: Install, source: str, why: str
) -> None:
    install(source)
    providers = load_providers()
    assert [*providers] == OURS
    (line,) = providers.unusable.values()
    assert line.startswith(f"the provider toy of toy_provider cannot be used: {why}")
    assert "\n" not in line
    assert providers.why_not("toy") == line


def test_an_unknown_one_lists_those_there_are_and_what_to_install(install: Install) -> None:
    install(GOOD)
    install(NEEDY.replace('"toy"', '"needy"'), "needy_provider", "needy = needy_provider:Toy")
    line = load_providers().why_not("ec2")
    there = ", ".join([*OURS, "needy (pip install 'toy[cloud]')", "toy"])
    assert line == (
        f"'ec2' is not a provider; there are {there}; "
        "a package can bring others (entry point spillover.providers)"
    )


def test_a_provider_whose_module_is_missing_says_what_to_install(install: Install) -> None:
    install(NEEDY)
    kind = load_providers()["toy"]
    (line,) = kind.missing(kind.form(), {}, Path())
    assert line == "the provider toy needs the Python module no_such_module; run: pip install 'toy[cloud]'"


def test_nobody_replaces_another_provider(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(GOOD)
    install(GOOD, "later_provider", "toy = later_provider:Toy")
    monkeypatch.setattr(registry, "BUILT_IN", {**BUILT_IN, "toy": "toy_provider:Toy"})
    providers = load_providers()
    assert [*providers] == [*OURS, "toy"]
    assert type(providers["toy"]).__module__ == "toy_provider"
