"""The docs fail the build when they lie: what the code has is on its page, what the page has is in the code."""

import ast
import importlib.util
import re
from collections.abc import Callable, Iterator
from functools import cache
from inspect import Parameter, Signature, formatannotation, getmembers, signature
from pathlib import Path
from types import ModuleType
from typing import get_args

import msgspec
import pytest
from msgspec import inspect
from prometheus_client import CollectorRegistry

from spillover import __version__
from spillover.client import AsyncClient, Client, SpillError
from spillover.clusters.kinds import BUILT_IN, load_kinds
from spillover.config.clusteroption import read_options
from spillover.config.read import read_config
from spillover.control.controllers.delivering import Delivering
from spillover.control.live.clock import SystemClock
from spillover.control.live.loop import Loop
from spillover.control.notifications.settings import Settings
from spillover.core.events import AnyEvent, JobState, SeenNode
from spillover.core.transitions import AGENT
from spillover.deciding import protocols
from spillover.forms.jobs.reading import read_jobs
from spillover.forms.policies import installed
from spillover.model import reasons
from spillover.model.cluster import ClusterHealth, ClusterLife
from spillover.model.policy_options import OPTIONS
from spillover.policies.loading import load
from spillover.ports.cluster import Start
from spillover.ports.driver import Driver
from spillover.providers.registry import load_providers
from spillover.server.metrics import Metrics
from spillover.stores.blobs import MemoryBlobs
from spillover.stores.counted import CountedBlobs
from spillover.stores.memory import open_memory
from spillover.wire.jobfile import JobDoc

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
    ]
)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DEBT = ("TODO", "FIXME", "XXX", "TBD")


@cache
def text_of(page: str) -> str:
    return (DOCS / page).read_text()


def first_cells(page: str) -> set[str]:
    """What the tables of a page are about."""
    return set(re.findall(r"^\| `([^`|]+)` \|", text_of(page), re.MULTILINE))


def fields_of(kind: inspect.Type, path: str = "") -> Iterator[str]:
    """Every field that may be written, as the pages spell it; a mapping stands for what is in it."""
    match kind:
        case inspect.Metadata(type=inner):
            yield from fields_of(inner, path)
        case inspect.UnionType(types=types):
            some = [one for one in types if not isinstance(one, inspect.NoneType)]
            found = {name for one in some for name in fields_of(one, path)}
            yield from sorted(found)
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from fields_of(field.type, f"{path}.{field.encode_name}".lstrip("."))
        case inspect.ListType(item_type=item):
            inside = set(fields_of(item, f"{path}[]")) - {f"{path}[]"}
            yield path
            yield from sorted(inside)
        case _:
            yield path


def test_every_field_of_the_job_file_and_no_other_is_on_its_page() -> None:
    fields = set(fields_of(inspect.type_info(JobDoc)))
    # What a group runs and asks for is written as in the job itself.
    fields = {re.sub(r"^(spec\.groups\[\]\.\w+).*", r"\1", field) for field in fields}
    assert first_cells("job-file.md") == fields


def test_every_setting_and_no_other_is_on_its_page() -> None:
    settings = set(fields_of(inspect.type_info(load_kinds().config_doc)))
    written = {cell for cell in first_cells("configuration.md") if cell.upper() != cell}
    assert written == settings


def test_every_kind_of_cluster_and_no_other_is_in_the_table_of_kinds() -> None:
    (table,) = re.findall(
        r"^## Kinds of clusters\n(.*?)^## ", text_of("clusters.md"), re.MULTILINE | re.DOTALL
    )
    assert re.findall(r"^\| `([^`|]+)` \|", table, re.MULTILINE) == [*BUILT_IN]


def test_every_option_of_a_provider_and_no_other_is_in_its_section() -> None:
    providers = load_providers()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^##|\Z)", text_of("pools.md"), re.MULTILINE | re.DOTALL))
    assert {"aws", "process"} <= {*sections} & {*providers}
    for name, kind in [(name, kind) for name, kind in providers.items() if name in sections]:
        written = re.findall(r"^\| `([^`|]+)` \|", sections[name], re.MULTILINE)
        assert sorted(written) == sorted(kind.form.__struct_fields__), name


def test_all_that_a_driver_has_and_is_given_is_on_the_page_of_clusters() -> None:
    _, section = text_of("clusters.md").split("### The driver")
    cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    written = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    methods = [name for name in vars(Driver) if not name.startswith("_")]
    fields = (*Start.__struct_fields__, *SeenNode.__struct_fields__)
    assert sorted(written) == sorted([*Driver.__annotations__, *methods, *fields])
    assert all(f"`{name}`" in section for name in ("OutputGone", "DriverError"))


def test_every_state_of_a_cluster_is_on_its_page() -> None:
    states = {health.upper() for health in ClusterHealth} | {"REQUESTED", "EMPTY", "PROVISIONING", "DRAINING"}
    assert states == {cell for cell in first_cells("clusters.md") if cell.isalpha() and cell.isupper()}
    assert set(ClusterLife) | set(ClusterHealth) <= first_cells("clusters.md")


def test_clusters_of_a_command_line_are_read_as_the_page_writes_them() -> None:
    _, section = text_of("clusters.md").split("## Clusters on the command line")
    form, *examples = _FENCE.findall(section)[0][1].splitlines()
    assert form == "NAME=KIND[:OPTION,...]"
    assert len(read_options(examples).specs) == 3


def test_every_variable_that_is_read_is_on_the_page_of_settings() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(r"environ(?:\.get)?[\[(]\s*\"(SPILL_[A-Z_]+)\"", sources))
    assert read <= first_cells("configuration.md")
    assert {"SPILL_SERVER", "SPILL_DATA", "SPILL_TOKEN", "SPILL_CHECK"} <= read


def test_every_policy_and_no_other_is_on_its_page_with_its_options() -> None:
    page = text_of("policies.md")
    written = {cell for cell in first_cells("policies.md") if "." in cell}
    assert written == set(installed())
    for name, options in OPTIONS.items():
        assert all(f"`{option}`" in page for option in options), name


def test_every_axis_of_a_policy_is_on_the_page_as_its_protocol_is() -> None:
    page = text_of("policies.md")
    for name in ("Order.key", "Backfill.strict", "Wait.wait", "Place.score", "Route.pick"):
        kind, member = name.split(".")
        assert hasattr(getattr(protocols, kind), member) or member in getattr(protocols, kind).__annotations__
        assert f"`{name}" in page


def test_every_reason_has_advice_on_its_page() -> None:
    _, advice = text_of("reasons.md").split("## What to do")
    codes = {str(kind.__struct_config__.tag) for kind in get_args(reasons.Reason)}
    assert set(re.findall(r"^\| `(\w+)` \|", advice, re.MULTILINE)) == codes


def test_every_event_and_no_other_is_on_its_page() -> None:
    written = re.findall(r"^### `(\w+)`$", text_of("events.md"), re.MULTILINE)
    assert sorted(written) == sorted(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent))


def test_every_metric_and_no_other_is_on_the_page_of_operations() -> None:
    loop = Loop(open_memory().journal, load, SystemClock())
    delivering = Delivering(loop, open_memory().outbox, Settings(), lambda _: None)
    metrics = Metrics(loop, blobs=CountedBlobs(MemoryBlobs()), delivering=delivering)
    registry: CollectorRegistry = metrics.registry
    shown = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name: metric.type
        for metric in registry.collect()
    }
    rows = re.findall(r"^\| `((?:spill|process)_\w+)` \| (\w+) \|", text_of("operations.md"), re.MULTILINE)
    assert dict(rows) == shown


def methods_of(kind: type) -> dict[str, str]:
    """The public methods of a class with their parameters, as one would write them down."""
    return {
        name: f"{name}{bare(method)}"
        for name, method in getmembers(kind, callable)
        if not name.startswith("_")
    }


def bare(method: Callable[..., object]) -> Signature:
    """What a method takes, without types."""
    _, *taken = signature(method).parameters.values()
    return Signature([one.replace(annotation=Parameter.empty) for one in taken])


def test_every_method_of_the_client_is_on_its_page_with_its_parameters_and_what_it_returns() -> None:
    _, section = text_of("http-api.md").split("## From Python")
    rows = re.findall(r"^\| `(\w+\([^`]*\))` \| `([^`]+)` \|", section, re.MULTILINE)
    returns = {
        call: re.sub(
            r"(?:\w+\.)+|'", "", formatannotation(signature(getattr(Client, name)).return_annotation)
        )
        for name, call in methods_of(Client).items()
    }
    written = {call: kind.replace("\\|", "|") for call, kind in rows}
    assert written == {f"Client{bare(Client.__init__)}": "Client"} | returns
    assert all(f"`{name}`" in section for name, one in getmembers(Client) if isinstance(one, property))
    assert all(f"| `{error.__name__}` |" in section for error in SpillError.__subclasses__())


def test_both_clients_have_the_same_methods() -> None:
    assert methods_of(AsyncClient) == methods_of(Client)
    assert bare(AsyncClient.__init__) == bare(Client.__init__)


def test_every_state_of_jobs_and_agents_is_on_its_page() -> None:
    assert {state.value for state in JobState} <= first_cells("jobs.md")
    states = {state for state, _ in AGENT} | set(AGENT.values())
    assert states - {"unknown"} <= first_cells("agents.md")


@pytest.mark.parametrize(
    ("page", "heading"), [("../CONTRIBUTING.md", "How to add ..."), ("architecture.md", "Where to add what")]
)
def test_every_file_that_a_recipe_names_is_there(page: str, heading: str) -> None:
    _, recipes = text_of(page).split(f"## {heading}\n")
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|md))?)`", recipes.split("\n## ")[0]))
    assert len(named) > 20
    assert [
        name for name in named if not any((at / name).exists() for at in (ROOT, ROOT / "src/spillover"))
    ] == []


def test_the_recipe_of_an_endpoint_names_the_tests_that_read_its_declaration() -> None:
    _, recipe = text_of("../CONTRIBUTING.md").split("**An HTTP endpoint**")
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", recipe.split("\n**")[0]))
    guards = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests/unit").rglob("test_*.py")
        if re.search(r"import .*\bENDPOINTS\b", path.read_text())
    }
    assert guards <= named


@cache
def anchors_of(page: Path) -> set[str]:
    """What links may name of a page: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_package_and_no_other_is_on_the_page_of_the_architecture() -> None:
    package = ROOT / "src" / "spillover"
    packages = {f"{found.parent.relative_to(package)}/" for found in package.glob("*/**/__init__.py")} - {
        "api/"
    }
    rows = re.findall(r"^\| (`[a-z/`, ]+/`) \| (.*) \|$", text_of("architecture.md"), re.MULTILINE)
    assert {name for folders, _ in rows for name in re.findall(r"[a-z/]+", folders)} == packages
    for folders, contents in rows:
        inside = {
            each.name for name in re.findall(r"[a-z/]+", folders) for each in (package / name).iterdir()
        }
        assert set(re.findall(r"`([a-z_]+\.py)`", contents)) <= inside, folders
    paths = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text_of("architecture.md"))
    assert [path for path in paths if not (package / path).exists() and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        if "://" not in target:
            file, _, heading = target.partition("#")
            there = page.parent / file if file else page
            assert there.exists(), target
            assert not heading or heading in anchors_of(there), target


def test_every_page_can_be_come_to_from_the_readme() -> None:
    linked = {
        (ROOT / target.partition("#")[0]).resolve() for target in _LINK.findall(text_of("../README.md"))
    }
    assert set(DOCS.rglob("*.md")) <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_finished_and_their_fences_are_closed(page: Path) -> None:
    text = page.read_text()
    assert text.startswith("# ")
    assert not [word for word in _DEBT if word in text]
    assert text.count("\n```") % 2 == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_on_pages_are_read_without_a_problem(page: Path) -> None:
    for language, body in _FENCE.findall(page.read_text()):
        if language == "python":
            ast.parse(body)
        if language != "yaml" or body.startswith("# typo.yaml") or "kind: Role\n" in body:
            continue  # tests/kube uses the role
        if "kind: Config" in body:
            read_config(body)
        elif "kind: Job" in body or body.startswith("version: 1\n"):  # a jobspec
            assert read_jobs(body, page.name)
        else:
            read_config("apiVersion: spillover/v1\nkind: Config\n" + body)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spillover_docs", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_are_as_the_code_is_now(generator: ModuleType) -> None:
    """`make docs` writes them."""
    named: set[str] = set()
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        named |= {name for _, name, _ in generator.PART.findall(text)}
        assert generator.generated(text) == text, f"{page.name} is old: run make docs"
    assert named == set(generator.WRITERS)


def test_a_struct_is_taken_apart_into_its_fields() -> None:
    class Inner(msgspec.Struct):
        a: int
        b: list[str]

    class Outer(msgspec.Struct):
        one: Inner
        many: list[Inner | str]

    found = set(fields_of(inspect.type_info(Outer)))
    assert found == {"one.a", "one.b", "many", "many[].a", "many[].b"}


def test_the_version_is_that_of_the_changelog() -> None:
    """What has not been released has a version of its own, so that people can tell it from the last release."""
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if sections[0] != "Unreleased":
        assert __version__ == sections[0]
        return
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)\.dev\d+", __version__)
    assert match is not None, f"{__version__} is not a version of development, such as 0.5.0.dev0"
    assert tuple(map(int, match.groups())) > tuple(map(int, sections[1].split(".")))
