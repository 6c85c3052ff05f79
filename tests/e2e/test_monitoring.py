"""The example rules and the dashboard of deploy/monitoring ask for metrics, labels and values that a real server has."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import ServerProcess, wait_until, write_config
from tests.unit.test_docs import anchors_of

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "monitoring"
OWN: Final = {"up": {"job", "instance"}}
"""Metrics that Prometheus makes itself, with their labels."""
ADDED: Final = {"job", "instance"}
"""Labels that Prometheus adds to all metrics."""
_WORDS: Final = {"by", "on", "sum", "min", "rate", "increase", "histogram_quantile", "unless", "le"}
_SELECTOR: Final = re.compile(r"\b([a-z][a-z0-9_]*)\b(?:\{([^}]*)\})?(?!\s*\()")
_GROUPED: Final = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_MATCHER: Final = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


class Printed(NamedTuple):
    """What a server prints as metrics."""

    text: str
    labels: dict[str, set[str]]
    """Labels by the name of a sample; those without samples have those that the docs name."""
    values: dict[tuple[str, str], set[str]]
    """Values by sample and label."""


def prometheus_config() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    return read


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return read


def panel_targets() -> Iterator[tuple[str, dict[str, str]]]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


EXPRESSIONS: Final = [(rule["alert"], rule["expr"]) for rule in rules()] + [
    (title, target["expr"]) for title, target in panel_targets()
]


def selectors(expression: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield the metrics that an expression asks for, with their matchers."""
    for name, matchers in _SELECTOR.findall(_GROUPED.sub("", re.sub(r"\[\w+\]", "", expression))):
        if name not in _WORDS and (name in OWN or "_" in name):
            yield name, _MATCHER.findall(matchers)


def grouped(expression: str) -> set[str]:
    """The labels that an expression groups by."""
    return {label.strip() for labels in _GROUPED.findall(expression) for label in labels.split(",")}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Printed]:
    """The metrics of a server with a queue, a budget, a pool, and jobs that ran, wait and cannot run."""
    folder = tmp_path_factory.mktemp("monitored")
    pool = {
        "provider": "process",
        "offers": [{"type": "small", "cpu": 1, "memory": "1Gi", "hour": 0.1}],
        "max": 1,
        "boot": "1s",
    }
    config = write_config(
        folder,
        clusters=[
            {"name": "onprem", "local": [{"name": "n1", "cpu": 1}]},
            {"name": "cloud", "role": "rented", "pool": pool | {"idle": "1s"}},
        ],
        queues=[{"name": "batch", "default": True}],
        budgets=[{"project": "default", "per": "month", "limit": 5}],
        policy={"wait": "zero"},
    )
    server = ServerProcess(folder, *config)
    try:
        server.up()
        assert server.spill("run", "--wait", "--", "true").returncode == 0
        with server.client() as client:
            client.submit(run="sleep 600", cpu=1)
            client.submit(run="true", cpu=1, hold=True)
            wait_until(lambda: any(job.state == "RUNNING" for job in client.jobs()), "a job running")
            client.submit(run="true", cpu=1)
            wait_until(
                lambda: "spill_machine_cost_total{" in metrics_of(server), "a machine that is gone", 40
            )
        yield read(metrics_of(server))
    finally:
        server.clear()


def metrics_of(server: ServerProcess) -> str:
    token = (server.data / "token").read_text().strip()
    return httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {token}"}).text


def read(text: str) -> Printed:
    documented = documented_labels()
    labels: dict[str, set[str]] = {name: set(found) for name, found in OWN.items()}
    values: dict[tuple[str, str], set[str]] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not family.samples:
            labels[name] = documented.get(name, set()) | ADDED
        for sample in family.samples:
            labels.setdefault(sample.name, set(ADDED)).update(sample.labels)
            for label, value in sample.labels.items():
                values.setdefault((sample.name, label), set()).add(value)
    return Printed(text, labels, values)


def documented_labels() -> dict[str, set[str]]:
    """The words of each row about a metric that could be labels."""
    rows = re.findall(
        r"^\| `((?:spill|process)_\w+)` \| \w+ \| (.*) \|$",
        (ROOT / "docs/operations.md").read_text(),
        re.MULTILINE,
    )
    return {name: set(re.findall(r"`(\w+)`", about)) for name, about in rows}


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_expressions_ask_for_what_a_server_prints(printed: Printed, name: str, expression: str) -> None:
    asked = list(selectors(expression))
    assert asked, name
    known: set[str] = set()
    for metric, matchers in asked:
        assert metric in printed.labels, f"no server prints {metric}"
        known |= printed.labels[metric]
        for label, how, value in matchers:
            assert label in printed.labels[metric], f"{metric} has no label {label}"
            found = printed.values.get((metric, label))
            if found and label not in ADDED and not value.startswith("$"):
                assert how in {"=", "=~", "!="}
                wanted = set(value.split("|"))
                assert wanted <= found | {"*"}, f"{metric} has no {label} {wanted - found}"
    assert grouped(expression) <= known | {"le"}


def test_texts_name_labels_that_their_expressions_have(printed: Printed) -> None:
    texts = [(rule["expr"], " ".join(rule["annotations"].values()), r"\$labels\.(\w+)") for rule in rules()]
    texts += [(target["expr"], target["legendFormat"], r"\{\{(\w+)\}\}") for _, target in panel_targets()]
    for expression, text, form in texts:
        # What an aggregation keeps is what it groups by.
        kept = grouped(expression)
        if not re.search(r"\b(?:sum|min)\b", expression.split("unless")[0]):
            kept = set.union(*[printed.labels[metric] for metric, _ in selectors(expression)])
        assert set(re.findall(form, text)) <= kept, text


def test_every_alert_says_what_is_wrong_and_where_to_read_on() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) > 10
    for rule in rules():
        assert rule["annotations"]["summary"].endswith("."), rule
        page, _, heading = rule["annotations"]["runbook"].partition("#")
        assert (ROOT / page).is_file(), rule
        assert heading in anchors_of(ROOT / page), rule
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_the_example_configuration_reads_the_alerts_under_the_name_that_they_use() -> None:
    config = prometheus_config()
    assert [(FOLDER / name).is_file() for name in config["rule_files"]] == [True]
    (job,) = config["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("spillover", "/metrics")
    named = {value for _, text in EXPRESSIONS for label, _, value in _MATCHER.findall(text) if label == "job"}
    assert named == {"spillover"}


def test_variables_of_the_dashboard_are_those_that_its_panels_use(printed: Printed) -> None:
    board = dashboard()
    variables = {each["name"]: each for each in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps(board["panels"])))
    assert used == set(variables)
    for each in variables.values():
        if each["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", each["query"]["query"])
            assert found is not None
            assert found[2] in printed.labels[found[1]]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.fixture
def promtool() -> str:
    """The program that checks files of Prometheus."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    return found


def test_promtool_accepts_configuration_alerts_and_panels(promtool: str, tmp_path: Path) -> None:
    panels = [
        {"record": f"panel:{at}", "expr": re.sub(r"\$\w+", ".*", target["expr"])}
        for at, (_, target) in enumerate(panel_targets())
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": panels}]}))
    for words in (
        ("check", "config", "--syntax-only", str(FOLDER / "prometheus.yml")),
        ("check", "rules", str(FOLDER / "alerts.yml")),
        ("check", "rules", str(tmp_path / "panels.yml")),
    ):
        done = subprocess.run([promtool, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    """Those whose expressions join several metrics."""
    own = 'instance="a", job="spillover"'
    series = {
        f"spill_jobs_queued{{{own}}}": "7x120",
        f'spill_jobs_placed_total{{{own}, cluster="x"}}': "0+1x20 20x100",
        f'spill_asked_cpus{{{own}, cluster="y"}}': "4x120",
        f'spill_asked_cpus{{{own}, cluster="x"}}': "4x120",
        f'spill_asked_cpus{{{own}, cluster="*"}}': "4x120",
        f'spill_cluster_cpus{{{own}, cluster="x", use="capacity"}}': "8x120",
        f'spill_cluster_cpus{{{own}, cluster="y", use="capacity"}}': "0x120",
        **{
            f'spill_budget{{{own}, of="project", name="p", per="month", what="{what}"}}': f"{value}x120"
            for what, value in (("limit", 10), ("spent", 5), ("held", 4))
        },
    }

    def fires(alert: str, at: str, **labels: str) -> dict[str, Any]:
        rule = next(each for each in rules() if each["alert"] == alert)
        if not labels:
            return {"eval_time": at, "alertname": alert, "exp_alerts": []}
        value = labels.pop("value")
        summary = re.sub(r"\{\{ \$value[^}]*\}\}", value, rule["annotations"]["summary"])
        summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], summary)
        annotations = {"summary": summary, "runbook": rule["annotations"]["runbook"]}
        expected = {"exp_labels": labels | rule["labels"], "exp_annotations": annotations}
        return {"eval_time": at, "alertname": alert, "exp_alerts": [expected]}

    tests = [
        fires("SpilloverNothingStarts", "40m"),
        fires("SpilloverNothingStarts", "100m", instance="a", job="spillover", value="7"),
        fires("SpilloverClusterEmpty", "40m", instance="a", cluster="y", value="4"),
        fires(
            "SpilloverBudgetNearlySpent",
            "10m",
            instance="a",
            of="project",
            name="p",
            per="month",
            value="90%",
        ),
    ]
    document = {
        "rule_files": [str(FOLDER / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": tests,
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "tests.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_what_a_server_prints(promtool: str, printed: Printed) -> None:
    done = subprocess.run(
        [promtool, "check", "metrics"], input=printed.text, capture_output=True, text=True, check=False
    )
    assert "error while linting" not in done.stderr
    assert done.returncode in {0, 3}, done.stderr  # 3: remarks about style
