"""`spill clusters add`, `drain`, `resume` and `remove`, and `spill config`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from spillover.clusters.kinds import BUILT_IN
from spillover.forms.problems import either
from spillover.providers import registry
from spillover.wire.api import ClusterView, ConfigChange, ConfigOutcome


def a_cluster(**changes: Any) -> ClusterView:
    """A drained cluster."""
    lab = ClusterView("lab", "agents", "owned", "DRAINING", 0, {}, {}, 0, {}, drained_by="ann")
    return structs.replace(lab, **changes)


@pytest.fixture
def done(client: Any) -> list[tuple[Any, ...]]:
    """What was asked of the server."""
    asked: list[tuple[Any, ...]] = []

    def noting(what: str) -> Callable[..., list[str]]:
        def note(*names: str, **how: str) -> list[str]:
            asked.append((what, *names, *how.values()))
            return list(names)

        return note

    def add(cluster: dict[str, Any], *, check: bool) -> ClusterView:
        asked.append(("add", cluster, check))
        return ClusterView(cluster["name"], "agents", "owned", "REQUESTED", 0, {}, {}, 0, {})

    def configure(*, dry_run: bool = False, jobs: str = "finish") -> ConfigOutcome:
        asked.append(("config", dry_run, jobs))
        return ConfigOutcome([ConfigChange("cluster lab", "added", "of kind agents, owned")], not dry_run)

    for what in ("drain", "resume", "remove"):
        setattr(client, f"{what}_clusters", noting(what))
    client.add_cluster, client.apply_config = add, configure
    return asked


def test_clusters_are_named_behind_what_is_done_to_them(
    done: list[tuple[Any, ...]], spill: Callable[..., Any]
) -> None:
    for words in (("drain", "lab", "gpu"), ("resume", "lab"), ("remove", "lab"), ("remove", "lab", "--move")):
        typed = spill("clusters", *words)
        assert (typed.code, typed.out, typed.err) == (0, "", "")
    assert done == [
        ("drain", "lab", "gpu"),
        ("resume", "lab"),
        ("remove", "lab", "finish"),
        ("remove", "lab", "move"),
    ]
    assert json.loads(spill("clusters", "drain", "lab", "--json").out) == ["lab"]


def test_one_is_added_by_a_word_or_by_a_file(
    done: list[tuple[Any, ...]], spill: Callable[..., Any], tmp_path: Path
) -> None:
    assert spill("clusters", "add", "lab=agents:rented,cpu=0.5,label.room=2").code == 0
    file = tmp_path / "cluster.yaml"
    file.write_text("name: gpu\nlocal: [{name: n1, cpu: 1}]\n")
    assert spill("clusters", "add", "-f", str(file), "--no-check").code == 0
    file.write_text("clusters: [{name: a}, {name: b}]\n")
    assert [each["name"] for each in json.loads(spill("clusters", "add", "-f", str(file), "--json").out)] == [
        "a",
        "b",
    ]
    price = {"cpu_hour": "0.5"}
    lab = {"name": "lab", "kind": "agents", "role": "rented", "price": price, "labels": {"room": "2"}}
    assert done == [
        ("add", lab, True),
        ("add", {"name": "gpu", "local": [{"name": "n1", "cpu": 1}]}, False),
        ("add", {"name": "a"}, True),
        ("add", {"name": "b"}, True),
    ]


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (a_cluster(leaving="finish"), "lab is being removed by ann; jobs there finish first"),
        (a_cluster(leaving="move"), "lab is being removed by ann; jobs there are requeued"),
        (a_cluster(leaving="cancel"), "lab is being removed by ann; jobs there are cancelled"),
        (a_cluster(), "lab was drained by ann; to resume it, run `spill clusters resume lab`"),
        (a_cluster(drained_by=None, why="no route"), "lab is DRAINING: no route"),
        (
            a_cluster(drained_by=None, why="no route", since="2026-01-31T10:00:00Z"),
            "lab has been DRAINING since 2026-01-31T10:00:00Z: no route",
        ),
    ],
)
def test_a_list_says_in_whole_sentences_why_a_cluster_takes_nothing(
    client: Any, spill: Callable[..., Any], cluster: ClusterView, told: str
) -> None:
    client.clusters = lambda: [cluster]
    assert spill("clusters").err == f"spill: {told}\n"
    assert spill("clusters", "list") == spill("clusters")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add",), "no cluster to add"),
        (("add", "lab=agents", "-f", "x"), "no cluster to add"),
        (("add", "lab"), "must have the form NAME=KIND:OPTION,..."),
        (("add", "lab=agents:colour=red"), "'colour' is not an option of cluster kind agents"),
        (("drain",), "no cluster to drain"),
        (("list", "lab"), "`spill clusters list` lists all clusters; remove the names"),
        (("drain", "lab", "--cancel"), "--cancel is only allowed with `spill clusters remove`"),
        (("remove", "lab", "--no-check"), "are only allowed with `spill clusters add`"),
        (("remove", "lab", "--move", "--cancel"), "not allowed with"),
        (("stop", "lab"), "invalid choice"),
    ],
)
def test_what_makes_no_sense_is_a_mistake(
    done: list[tuple[Any, ...]], spill: Callable[..., Any], words: tuple[str, ...], told: str
) -> None:
    typed = spill("clusters", *words)
    assert typed.code == 2
    assert told in typed.err
    assert typed.err.count("\n") == 1
    assert done == []


def test_a_file_that_is_no_cluster_is_a_mistake(
    done: list[tuple[Any, ...]], spill: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("- lab\n")
    assert "write one cluster, or a list of clusters" in spill("clusters", "add", "-f", str(file)).err
    assert spill("clusters", "add", "-f", str(tmp_path / "none")).code == 2
    assert done == []


def test_the_configuration_is_compared_and_applied(
    done: list[tuple[Any, ...]], spill: Callable[..., Any]
) -> None:
    typed = spill("config", "diff")
    assert "cluster lab" in typed.out
    assert "nothing was changed" in typed.err
    assert json.loads(spill("config", "apply", "--cancel", "--json").out)["done"]
    assert done == [
        ("config", True, "finish"),
        ("config", False, "cancel"),
    ]


@pytest.mark.parametrize(
    ("kinds", "note"),
    [
        (["changed"], "spill: nothing was changed; run `spill config apply` to apply this\n"),
        (["kept", "restart"], "spill: nothing was changed; restart the server to apply this\n"),
        (
            ["restart", "added"],
            "spill: nothing was changed; run `spill config apply` to apply this; then restart the server to apply the rest\n",
        ),
        (["kept"], ""),
    ],
)
def test_a_comparison_says_how_to_apply_what_differs(
    client: Any, spill: Callable[..., Any], kinds: list[str], note: str
) -> None:
    changes = [ConfigChange("retention", kind, "") for kind in kinds]
    client.apply_config = lambda **_: ConfigOutcome(changes, done=False)
    assert spill("config", "diff").err == note


def test_it_is_checked_without_a_server(spill: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "spill.yaml"
    file.write_text("apiVersion: spillover/v1\nkind: Config\nclusters: [{name: lab}]\n")
    typed = spill("config", "check", str(file))
    assert (typed.code, typed.out) == (0, f"{file} is valid; clusters: lab (agents, owned)\n")
    assert json.loads(spill("config", "check", str(file), "--json").out)["clusters"] == ["lab"]
    file.write_text("apiVersion: spillover/v1\nkind: Config\nclusters: [{name: lab, kind: nomad}]\n")
    typed = spill("config", "check", str(file))
    assert (typed.code, typed.err) == (
        2,
        f"spill: {file}:3: clusters[0].kind: 'nomad' must be {either(sorted(BUILT_IN))}\n",
    )
    gone = tmp_path / "kube"
    file.write_text(
        "apiVersion: spillover/v1\nkind: Config\n"
        f"clusters: [{{name: k, kind: kubernetes, kubernetes: {{kubeconfig: {gone}}}}}]\n"
    )
    typed = spill("config", "check", str(file))
    assert typed.code == 2
    assert typed.err.startswith("spill: cluster k: ")
    assert spill("config", "check", str(tmp_path / "none")).code == 2


def test_files_that_a_server_could_not_use_are_told_one_by_one(
    spill: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spill.yaml").write_text(
        """\
apiVersion: spillover/v1
kind: Config
data: spill.yaml/data
clusters: [{name: k, kind: kubernetes, kubernetes: {kubeconfig: kube}}]
tls: {cert: gone.crt, key: gone.key}
secrets:
  key_file: secret.key
telemetry:
  endpoint: https://localhost:4318
  ca: gone.pem
"""
    )
    typed = spill("config", "check")
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.splitlines()[:-1] == [
        f"spill: spill.yaml:3: data: {tmp_path}/spill.yaml is not a folder",
        "spill: spill.yaml:5: tls.cert: gone.crt: No such file or directory; `spill cert init` makes one",
        "spill: spill.yaml:5: tls.key: gone.key: No such file or directory; `spill cert init` makes one",
        "spill: spill.yaml:7: secrets.key_file: there is no key file secret.key; create it with `openssl rand -base64 32`, mode 0600",
        "spill: spill.yaml:10: telemetry.ca: gone.pem: No such file or directory",
    ]
    assert typed.err.splitlines()[-1].startswith("spill: cluster k: ")
    for name in ("gone.crt", "gone.key", "secret.key", "gone.pem"):
        Path(name).write_text("nothing of the kind")
    told = spill("config", "check").err
    assert "spill.yaml:5: tls: gone.crt, gone.key or the authority is not a PEM file" in told
    assert "key 1 in secret.key is not a key" in told
    assert "telemetry.ca: gone.pem has no certificate of an authority, as PEM" in told


def test_one_check_names_all_problems_of_form_of_meaning_and_of_what_is_named(
    spill: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spill.yaml").write_text(
        """\
apiVersion: spillover/v1
kind: Config
colour: red
http: localhost
currency: euro
tls: {cert: gone.crt, key: gone.key}
clusters:
  - {name: k, kind: kubernetes, kubernetes: {kubeconfig: kube}}
  - {name: bad name, kind: kubernetes, kubernetes: {kubeconfig: kube}}
notifications:
  webhooks:
    - {name: 7}
    - {name: none, url: "http://localhost:9/x"}
    - {name: ops, url: "http://localhost:9/x", secret_file: gone.secret}
  mail: {server: localhost, from: nobody, tls: "no", user: ann, password_file: gone.password}
telemetry: {ca: gone.pem, sample: 7}
"""
    )
    typed = spill("config", "check")
    assert (typed.code, typed.out) == (2, "")
    at = [line.removeprefix("spill: spill.yaml:").split(": ")[:2] for line in typed.err.splitlines()]
    assert at[:-1] == [
        ["3", "colour"],
        ["4", "http"],
        ["5", "currency"],
        ["6", "tls.cert"],
        ["6", "tls.key"],
        ["9", "clusters[1].name"],
        ["12", "notifications.webhooks[0].name"],
        ["12", "notifications.webhooks[0].url"],
        ["13", "notifications.webhooks[1]"],
        ["14", "notifications.webhooks[2]"],
        ["15", "notifications.mail.tls"],
        ["15", "notifications.mail.from"],
        ["15", "notifications.mail"],
        ["16", "telemetry.sample"],
        ["16", "telemetry.ca"],
    ]
    assert typed.err.splitlines()[-1].startswith("spill: cluster k: "), (
        "what can be opened, if its entry is right"
    )
    assert "cannot read gone.secret" in typed.err


def test_the_file_is_named_as_for_a_server_too(spill: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("apiVersion: spillover/v1\nkind: Config\nclusters: [{name: lab}]\n")
    typed = spill("config", "check", "--config", str(file))
    assert (typed.code, typed.out) == (0, f"{file} is valid; clusters: lab (agents, owned)\n")
    typed = spill("config", "check", str(file), "--config", str(file))
    assert (typed.code, typed.err) == (2, "spill: name one file: `spill config check FILE`\n")


def test_settings_of_queues_that_have_no_effect_are_told(spill: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "spill.yaml"
    queues = "clusters: [{name: lab}]\nqueues: [{name: short, priority: 5, clusters: [lab, lba]}]\n"
    file.write_text(f"apiVersion: spillover/v1\nkind: Config\n{queues}")
    typed = spill("config", "check", str(file))
    assert typed.code == 0
    assert typed.err.splitlines() == [
        "spill: queue short: its priority has no effect, because `policy.order` is `fifo`",
        "spill: queue short: there is no cluster lba here; add it, or correct `clusters`",
    ]
    file.write_text(f"apiVersion: spillover/v1\nkind: Config\npolicy: {{order: priority}}\n{queues}")
    assert "priority" not in spill("config", "check", str(file)).err


def test_a_provider_that_cannot_be_loaded_is_named_and_breaks_nothing(
    spill: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BUILT_IN", {**registry.BUILT_IN, "toy": "no_such_module:Toy"})
    file = tmp_path / "spill.yaml"
    offers = "[{type: small, cpu: 1, memory: 1Gi, hour: 0.1}]"
    text = "apiVersion: spillover/v1\nkind: Config\nclusters: [{name: a, role: rented, pool: {provider: PROVIDER, offers: OFFERS}}]\n"
    file.write_text(text.replace("OFFERS", offers).replace("PROVIDER", "process"))
    line = "the provider toy cannot be used: ModuleNotFoundError: No module named 'no_such_module'\n"
    typed = spill("config", "check", str(file))
    assert (typed.code, typed.err) == (0, f"spill: {line}")
    file.write_text(text.replace("OFFERS", offers).replace("PROVIDER", "toy"))
    typed = spill("config", "check", str(file))
    assert (typed.code, typed.err) == (2, f"spill: {file}:3: clusters[0].pool.provider: {line}")
