import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec import Struct

from spillover.clusters.kinds import BUILT_IN, GROUP, load_kinds, section_of
from spillover.config.clusteroption import read_options
from spillover.config.read import read_config
from spillover.forms.problems import BadForm, either
from spillover.forms.schema import config_schema
from spillover.model.cluster import ClusterSpec, Price, Role
from spillover.model.ids import ClusterName
from spillover.wire.clusterfile import ClusterDoc
from spillover.wire.configfile import ConfigDoc

ROOT = Path(__file__).parents[3]
OURS = [*BUILT_IN]
HEAD = "apiVersion: spillover/v1\nkind: Config\n"
GOOD = """
from msgspec import Struct
from spillover.ports.kinds import Capability, CannotOpen, ClusterKind, Flaw

class Form(Struct, frozen=True, forbid_unknown_fields=True):
    queue: str = "main"
    loud: bool = False
    hosts: list[str] = []

class Toy(ClusterKind):
    name = "toy"
    form = Form

    def capabilities(self, form):
        return frozenset({Capability.COMMANDS, Capability.GANGS})

    def check(self, form, cluster):
        return [Flaw(("queue",), "is not a queue")] if form.queue == "none" else []

    def open(self, form, opening):
        raise CannotOpen("there is nothing behind it")
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package with one kind where Python finds it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(source: str, module: str = "toy_kind", point: str = "toy = toy_kind:Toy") -> None:
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{point}\n")
        monkeypatch.delitem(__import__("sys").modules, module, raising=False)

    return put


def read(text: str) -> Any:
    return read_config((HEAD + text).encode(), "spill.yaml")


def test_our_own_kinds_are_registered_as_any_other_would_be() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][GROUP] == BUILT_IN
    assert [*load_kinds()] == OURS
    assert load_kinds().unusable == {}


def test_a_kind_of_an_installed_package_is_configured_as_ours_are(install: Install) -> None:
    install(GOOD)
    config = read("clusters: [{name: a, kind: toy, role: owned, toy: {queue: fast}}, {name: b, kind: toy}]")
    assert config.clusters == (
        ClusterSpec(ClusterName("a"), "toy", Role.OWNED, gangs=True, runs=("command",)),
        ClusterSpec(ClusterName("b"), "toy", Role.OWNED, gangs=True, runs=("command",)),
    )
    forms = config.forms
    assert (forms[ClusterName("a")].queue, forms[ClusterName("b")].queue) == ("fast", "main")
    schema = config_schema(load_kinds().config_doc)
    value = {"apiVersion": "spillover/v1", "kind": "Config", "clusters": [{"name": "a", "kind": "toy"}]}
    jsonschema.Draft202012Validator(schema).validate(value)
    value["clusters"] = [{"name": "a", "kind": "toy", "toy": {"colour": "red"}}]
    assert not jsonschema.Draft202012Validator(schema).is_valid(value)


def test_its_options_are_those_of_a_command_line_too(install: Install) -> None:
    install(GOOD)
    (form,) = read_options(["a=toy:queue=fast,loud,owned"]).forms.values()
    assert isinstance(form, Struct)
    assert (form.queue, form.loud) == ("fast", True)  # type: ignore[attr-defined]
    with pytest.raises(BadForm, match="'hosts' is not an option of cluster kind toy"):
        read_options(["a=toy:hosts=x"])


NUMBERS = GOOD.replace(
    "    loud: bool = False\n",
    "    cpu: int = 1\n    memory: str | int = '1Gi'\n    jobs: int | None = None\n    share: float = 1.0\n",
)


def test_on_a_command_line_the_form_of_a_kind_comes_before_prices_and_limits(install: Install) -> None:
    install(NUMBERS)
    clusters = read_options(["a=toy:cpu=4,memory=2,jobs=7,share=0.5,gpu=2.5,rented"])
    (form,) = clusters.forms.values()
    asked = (form.cpu, form.memory, form.jobs, form.share)  # type: ignore[attr-defined]
    assert asked == (4, "2", 7, 0.5)
    (spec,) = clusters.specs
    assert (spec.price, spec.most_jobs) == (Price(gpu_hour=2_500_000), None)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("cpu=many", "cpu: must be a whole number, found the text 'many'"),
        ("cpu=" + "9" * 5000, "cpu: must be a whole number, found the text"),
        ("cpu=0.5", "cpu: must be a whole number, found the text '0.5'"),
        ("cpu=1_0", "cpu: must be a whole number, found the text '1_0'"),
        ("share=inf", "share: must be a number, found the text 'inf'"),
        ("cpu", "cpu needs a value: cpu=..."),
    ],
)
def test_a_number_of_its_options_has_to_be_one(install: Install, words: str, line: str) -> None:
    install(NUMBERS)
    with pytest.raises(BadForm) as error:
        read_options([f"a=toy:{words}"])
    (said,) = str(error.value).splitlines()
    assert line in said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{name: a, kind: toy, toy: {queue: none}}", "clusters[0].toy.queue: is not a queue"),
        (
            "{name: a, kind: toy, toy: {queues: x}}",
            "clusters[0].toy.queues: unknown field; did you mean `queue`",
        ),
        ("{name: a, toy: {queue: x}}", "is only allowed with kind: toy"),
        (
            "{name: a, kind: toy, local: [{name: n, cpu: 1}]}",
            "clusters[0].local: is only allowed with kind: agents",
        ),
        ("{name: a, kind: tyo}", f"'tyo' must be {either(sorted([*OURS, 'toy']))}"),
    ],
)
def test_what_is_wrong_with_it_is_told_where_it_stands(install: Install, text: str, line: str) -> None:
    install(GOOD)
    with pytest.raises(BadForm) as error:
        read(f"clusters: [{text}]")
    (said,) = str(error.value).splitlines()
    assert line in said


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("class Toy: pass", "TypeError: it has no name, form, section, capabilities"),
        (GOOD.replace('"toy"', '"toys"'), "ValueError: its entry point must have its name"),
        (GOOD.replace("form = Form", "form = dict"), "TypeError: its form is not a msgspec.Struct"),
        (GOOD.replace("queue: str = ", "queue: str #"), "TypeError: Missing required argument 'queue'"),
        ("raise SystemError('it is broken\\nfor good')", "SystemError: it is broken for good"),
    ],
)
def test_one_that_cannot_be_loaded_is_named_in_one_line_and_breaks_nothing(
    install: Install, source: str, why: str
) -> None:
    install(source)
    kinds = load_kinds()
    assert [*kinds] == OURS
    (line,) = kinds.unusable.values()
    assert line.startswith(f"the cluster kind toy of toy_kind cannot be used: {why}")
    assert "\n" not in line
    assert read("clusters: [{name: a}]").clusters
    with pytest.raises(BadForm) as error:
        read("clusters: [{name: a, kind: toy, toy: {queue: fast}}]")
    assert str(error.value) == f"spill.yaml:3: clusters[0].kind: {line}"


@pytest.mark.parametrize("name", ["my-kind", "price", "local", "class", "kubernetes2"])
def test_whatever_a_kind_is_called_the_others_go_on(install: Install, name: str) -> None:
    install(GOOD.replace('"toy"', f'"{name}"'), point=f"{name} = toy_kind:Toy")
    install("import no_such_module", "broken", f"{name} = broken:Broken")
    kinds = load_kinds()
    assert ([*kinds], [*kinds.unusable]) == (([*OURS, name], []) if name == "kubernetes2" else (OURS, [name]))
    assert read("clusters: [{name: a, price: {}, local: [{name: n, cpu: 1}]}]").clusters
    config_schema(kinds.config_doc)


def test_what_kinds_add_to_a_form_comes_last() -> None:
    kinds = load_kinds()
    added = [
        name
        for kind in kinds.values()
        for name in (kind.form.__struct_fields__ if kind.section is None else (section_of(kind),))
    ]
    assert kinds.cluster_doc.__struct_fields__ == (*ClusterDoc.__struct_fields__, *added)
    assert kinds.config_doc.__struct_fields__ == ConfigDoc.__struct_fields__


def test_two_kinds_cannot_have_one_section(install: Install) -> None:
    install(GOOD.replace('name = "toy"', 'name = "toy"; section = "ours"'))
    other = GOOD.replace('name = "toy"', 'name = "other"; section = "ours"')
    install(other, "other_kind", "other = other_kind:Toy")
    assert [*load_kinds()] == [*OURS, "other"]
    (line,) = load_kinds().unusable.values()
    assert line.endswith("ValueError: another kind has the section 'ours'")
    assert read("clusters: [{name: a, kind: other, ours: {queue: x}}]").clusters


def test_two_packages_may_call_their_forms_alike(install: Install) -> None:
    install(GOOD)
    install(GOOD.replace('"toy"', '"other"'), "other_kind", "other = other_kind:Toy")
    assert [*load_kinds()] == [*OURS, "other", "toy"]
    schema = config_schema(load_kinds().config_doc)
    jsonschema.Draft202012Validator.check_schema(schema)


def test_nobody_replaces_a_kind_of_ours(install: Install) -> None:
    install(GOOD.replace('"toy"', '"agents"'), point="agents = toy_kind:Toy")
    kinds = load_kinds()
    assert type(kinds["agents"]).__name__ == "AgentsKind"
    assert [*kinds] == OURS


def test_a_kind_that_fails_at_a_check_costs_its_own_cluster(install: Install) -> None:
    install(GOOD.replace("return [Flaw", "raise KeyError('prices')\n        return [Flaw"))
    with pytest.raises(
        BadForm, match=r"clusters\[0\].toy: cluster kind toy failed to check this field: KeyError"
    ):
        read("clusters: [{name: a, kind: toy}]")
