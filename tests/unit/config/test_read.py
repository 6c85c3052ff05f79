from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from spillover.clusters.agents import machine
from spillover.clusters.agents.kind import local_specs
from spillover.clusters.agents.local import LocalSpec
from spillover.clusters.kinds import BUILT_IN, load_kinds
from spillover.config.config import (
    Address,
    Config,
    LimitsConfig,
    OnShutdown,
    RateConfig,
    RetentionConfig,
)
from spillover.config.read import default_config, read_config
from spillover.control.live.clock import ClockBounds
from spillover.forms.policies import installed
from spillover.forms.problems import BadForm, Findings, either
from spillover.model.access import Access
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import Billing, ClusterSpec, NodeClass, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import OPTIONS
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.model.topology import Level
from spillover.model.units import DAY, HOUR, MINUTE, MONEY, SECOND
from spillover.policies.loading import load
from spillover.ports.blobs import BlobBounds
from spillover.ports.driver import Manner, Patience
from spillover.wire.clusterfile import KubernetesDoc, LocalAgentsDoc, LocalDoc

HEAD = "apiVersion: spillover/v1\nkind: Config\n"


def read(text: str, **more: Any) -> Config:
    return read_config((HEAD + text).encode(), "spill.yaml", **more)


def agents_of(config: Config) -> list[LocalSpec]:
    return [
        each
        for name, form in config.forms.items()
        if isinstance(form, LocalAgentsDoc)
        for each in local_specs(form, name, Findings())
    ]


def refused(text: str, **more: Any) -> list[str]:
    with pytest.raises(BadForm) as error:
        read(text, **more)
    return str(error.value).splitlines()


def test_every_setting_is_read() -> None:
    config = read("""\
data: /var/lib/spill
store: postgresql://localhost/spill
http: localhost:0
grpc: "[::1]:7071"
currency: EUR
policy:
  order: priority
  backfill: strict
  place: {first_fit: }
  wait: {constant: {wait: 10m, min_wait: 1s, max_wait: 1h, max_queue: 5}}
  depth: 50
  unknown_runtime: 2h
clusters:
- {name: onprem, local: [{name: n1, cpu: 2, memory: 4Gi, gpu: 1, queue: 8, offers: [b, a], labels: {x: "1"}}]}
- name: cloud
  kind: agents
  role: rented
  local: [{name: v1, cpu: 1.5, memory: 8Gi}]
  price: {cpu_hour: 0.04, gpu_hour: "2.5", memory_gib_hour: 1}
  billing: {step: 60s, minimum: 2m}
agents: {lost_after: 10s, on_shutdown: keep, heartbeat: 500ms, prepare_within: 3m, keep_output: true, output_limit: 2Mi, isolation: watch}
retention: {jobs: 30d, logs: 0s, events: 1d}
clock: {jump: 10m, away: 7d}
""")
    assert structs.replace(config, entries={}) == Config(
        clusters=(
            ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED, gangs=True),
            ClusterSpec(
                ClusterName("cloud"),
                "agents",
                Role.RENTED,
                Price(40_000, 1_000_000, 2_500_000),
                Billing(60 * SECOND, 2 * MINUTE),
                gangs=True,
            ),
        ),
        forms={
            ClusterName("onprem"): LocalAgentsDoc(
                [LocalDoc("n1", 2, "4Gi", gpu=1, queue=8, offers=["b", "a"], labels={"x": "1"})]
            ),
            ClusterName("cloud"): LocalAgentsDoc([LocalDoc("v1", 1.5, "8Gi")]),
        },
        data="/var/lib/spill",
        store="postgresql://localhost/spill",
        http=Address("localhost", 0),
        grpc=Address("::1", 7071),
        currency="EUR",
        policies=PolicySet(
            order=Choice("priority"),
            backfill=Choice("strict"),
            wait=Choice(
                "constant", {"wait": 10 * MINUTE, "min_wait": SECOND, "max_wait": HOUR, "max_queue": 5}
            ),
            place=Choice("first_fit"),
            depth=50,
            unknown_runtime=2 * HOUR,
        ),
        lost_after=10 * SECOND,
        heartbeat=SECOND // 2,
        prepare_within=3 * MINUTE,
        on_shutdown=OnShutdown.KEEP,
        keep_output=True,
        output_limit=2 << 20,
        isolation="watch",
        retention=RetentionConfig(30 * DAY, 0, DAY),
        clock=ClockBounds(10 * MINUTE, 7 * DAY),
    )
    assert agents_of(config) == [
        LocalSpec(
            ClusterName("onprem"),
            NodeName("n1"),
            Resources(2000, 2**32, 1),
            8,
            ("a", "b"),
            {"x": "1"},
            ("--sockets", "auto"),
        ),
        LocalSpec(
            ClusterName("cloud"), NodeName("v1"), Resources(1500, 2**33, 0), options=("--sockets", "auto")
        ),
    ]
    assert msgspec.json.decode(config.entries[ClusterName("cloud")]) == {
        "name": "cloud",
        "role": "rented",
        "local": [
            {
                "name": "v1",
                "cpu": 1.5,
                "memory": "8Gi",
                "gpu": 0,
                "queue": None,
                "offers": [],
                "labels": {},
                "sockets": None,
                "gpu_link": None,
                "engine": None,
                "engine_options": [],
                "environments": {},
            }
        ],
        "price": {
            "cpu_hour": 0.04,
            "memory_gib_hour": 1,
            "gpu_hour": "2.5",
            "node": None,
            "egress_gb": 0,
        },
        "billing": {"step": "60s", "minimum": "2m"},
    }
    assert str(config.grpc) == "[::1]:7071"
    assert str(config.http.at(81)) == "localhost:81"


def test_without_a_file_this_machine_is_the_cluster() -> None:
    config = read_config(None)
    assert config == default_config() == read("")
    assert config.clusters == (ClusterSpec(ClusterName("local"), "agents", Role.OWNED, gangs=True),)
    (agent,) = agents_of(config)
    assert agent.name == "local-1"
    assert agent.capacity == Resources(machine.cpus() * 1000, machine.memory())
    assert agent.capacity.memory > 2**20
    assert config.policies == PolicySet()
    assert (config.data, config.store, config.currency) == ("./spill-data", "sqlite", "USD")


def test_slots_are_cpus_of_the_local_agent() -> None:
    assert agents_of(default_config(3))[0].capacity.cpu == 3000
    assert agents_of(read("currency: EUR", slots=3))[0].capacity.cpu == 3000
    with pytest.raises(BadForm, match="--slots: 0 is not a number of CPUs"):
        default_config(0)
    assert refused("clusters: [{name: a}]", slots=3) == [
        "spill.yaml:1: has clusters of its own; remove --slots, or the clusters"
    ]


def test_a_local_agent_is_told_its_engine() -> None:
    config = read(
        "clusters: [{name: a, local: [{name: n, cpu: 1, engine: sh, engine_options: [--network=none]}]}]"
    )
    (agent,) = agents_of(config)
    assert agent.options == ("--engine", "sh", "--engine-option=--network=none", "--sockets", "auto")
    two = "clusters: [{name: a, local: [{name: n, cpu: 1}, {name: m, cpu: 4, sockets: 2, gpu_link: nvlink}]}]"
    assert [each.options for each in agents_of(read(two))] == [
        ("--sockets", "0"),
        ("--sockets", "2", "--gpu-link", "nvlink"),
    ]
    assert refused("clusters: [{name: a, local: [{name: n, cpu: 1, gpu_link: nvlink}]}]") == [
        "spill.yaml:3: clusters[0].local[0].gpu_link: needs a number of `sockets`; write sockets: 1 or more"
    ]
    told = "clusters: [{name: a, local: [{name: n, cpu: 1, engine: no-such-engine, engine_options: ['']}]}]"
    assert refused(told) == [
        "spill.yaml:3: clusters[0].local[0].engine: there is no program 'no-such-engine'",
        "spill.yaml:3: clusters[0].local[0].engine_options[0]: '' is not an option of a container engine",
    ]


def test_an_agent_that_states_no_memory_has_all_of_the_machine() -> None:
    (agent,) = agents_of(read("clusters: [{name: a, local: [{name: n, cpu: 1}]}]"))
    assert agent.capacity.memory == machine.memory()


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    assert refused("""\
stor: sqlite
http: 0.0.0.0:7070
policy:
  order: fifoo
  wait: {compute: {coeficient: 1, max_queue: -1}}
clusters:
- {name: a, local: [{name: n, cpu: 0}, {name: m}, {name: "a b", cpu: 1}]}
- {name: a, role: mine}
- {name: c, local: [{name: n, cpu: 1}]}
retention: {jobs: 90}
""") == [
        "spill.yaml:3: stor: unknown field; did you mean `store`?",
        (
            "spill.yaml:4: http: '0.0.0.0' is not a loopback address and needs TLS; run `spill cert init` and set tls, or write 127.0.0.1:7070"
        ),
        "spill.yaml:6: policy.order: 'fifoo' is not a policy of the axis order; did you mean `fifo`?",
        "spill.yaml:7: policy.wait.compute.coeficient: unknown option; did you mean `coefficient`?",
        "spill.yaml:7: policy.wait.compute.max_queue: -1 is not a whole number from 0 to 1000000000",
        "spill.yaml:7: policy.wait.compute.coefficient: is missing; write how much waiting a rented CPU or GPU is worth, such as 0.076",
        "spill.yaml:9: clusters[0].local[1].cpu: is missing",
        "spill.yaml:9: clusters[0].local[0].cpu: 0 is out of range; write 0.001 or more",
        "spill.yaml:9: clusters[0].local[2].name: 'a b' is not a valid name; write 1 to 63 letters, digits, '.', '_' or '-', with a letter or digit at both ends",
        "spill.yaml:10: clusters[1].role: 'mine' must be owned or rented",
        "spill.yaml:10: clusters[1].name: 'a' is already the name of another cluster",
        "spill.yaml:11: clusters[2].local[0].name: 'n' is already the name of another agent",
        "spill.yaml:12: retention.jobs: 90 is not a duration; write 90s, 10m, 1h30m or 2d",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("store: mysql", "store: 'mysql' is not a store; write sqlite, memory or postgresql://..."),
        ("currency: dollars", "currency: 'dollars' is not a currency"),
        ("http: 7070", "http: must be text, found 7070"),
        ("http: localhost", "http: 'localhost' is not an address; write HOST:PORT, such as 127.0.0.1:7070"),
        ("http: 127.0.0.1:99999", "http: '127.0.0.1:99999' is not an address"),
        ("grpc: example.org:1", "grpc: 'example.org' is not an IP address; write an address of this machine"),
        ("grpc: 127.0.0.1:7070", "grpc: is the same address as http; use another port"),
        ("clusters: []", "clusters: is empty"),
        (
            "clusters: [{name: k, kind: nomad}]",
            f"clusters[0].kind: 'nomad' must be {either(sorted(BUILT_IN))}",
        ),
        (
            "clusters: [{name: k, kubernetes: {context: c}}]",
            "clusters[0].kubernetes: is only allowed with kind: kubernetes",
        ),
        (
            "clusters: [{name: k, kind: kubernetes, local: [{name: n1, cpu: 1}]}]",
            "clusters[0].local: is only allowed with kind: agents",
        ),
        (
            "clusters: [{name: k, kind: kubernetes, kubernetes: {in_cluster: true, context: c}}]",
            "clusters[0].kubernetes.in_cluster: cannot be combined with kubeconfig or context; leave one of them out",
        ),
        (
            "clusters: [{name: k, kind: kubernetes, kubernetes: {backoff: 5m, shun_for: 2m}}]",
            "clusters[0].kubernetes.shun_for: is the old name of `backoff`, which is also set; remove one of them",
        ),
        (
            "clusters: [{name: k, kind: kubernetes, kubernetes: {namespace: Big_One}}]",
            "clusters[0].kubernetes.namespace: 'Big_One' is not the name of a namespace",
        ),
        (
            "clusters: [{name: a, role: rented, price: {cpu_hour: -1}}]",
            "clusters[0].price.cpu_hour: -1 is out of range",
        ),
        ("clusters: [{name: a, billing: {step: 0s}}]", "clusters[0].billing.step: '0s' is out of range"),
        (
            "agents: {lost_after: 5s}",
            "agents.lost_after: '5s' is less than three heartbeats; write 30s or more",
        ),
        ("agents: {heartbeat: 1ms}", "agents.heartbeat: '1ms' is out of range; the minimum is 50ms"),
        ("agents: {output_limit: 4Ki}", "agents.output_limit: is too small; the minimum is 1Mi"),
        ("agents: {output_limit: much}", "agents.output_limit: 'much' is not an amount of memory"),
        ("agents: {isolation: jail}", "agents.isolation: 'jail' must be auto, cgroup,"),
        ("agents: {on_shutdown: kill}", "agents.on_shutdown: 'kill' must be keep or stop"),
        (
            "clusters: [{name: a, price: {cpu_hour: 1}}]",
            "clusters[0].price: is only allowed with role: rented",
        ),
        (
            "clusters: [{name: a, role: rented, price: {cpu_hour: 1, node: {cpu: 4, hour: 1}}}]",
            "clusters[0].price.cpu_hour: is not allowed with `node`",
        ),
        (
            "clusters: [{name: a, role: rented, price: {node: {hour: 1}}}]",
            "clusters[0].price.node.cpu: is missing",
        ),
        (
            "clusters: [{name: a, role: rented, price: {egress_gb: -1}}]",
            "clusters[0].price.egress_gb: -1 is out of range",
        ),
        ("clusters: [{name: a, startup: 2d}]", "clusters[0].startup: '2d' is out of range"),
        ("access: {changes: all}", "access.changes: 'all' must be owner or project"),
        (
            "access: {maintainers: {a b: [ada]}}",
            "access.maintainers['a b']: 'a b' is not a project: ",
        ),
        (
            "access: {maintainers: {vision: [ada, b ob]}}",
            "access.maintainers.vision[1]: 'b ob' is not a user: ",
        ),
        (
            "access: {max_priority: {admin: 5}}",
            "access.max_priority.admin: unknown field; expected one of submit, maintain",
        ),
        ("budgets: [{per: day, limit: 1}]", "budgets[0]: needs either `project` or `user`"),
        (
            "budgets: [{project: a, user: b, per: day, limit: 1}]",
            "budgets[0]: needs either `project` or `user`",
        ),
        ("budgets: [{project: a b, per: day, limit: 1}]", "budgets[0].project: 'a b' is not a valid name"),
        (
            "budgets: [{project: a, per: hour, limit: 1}]",
            "budgets[0].per: 'hour' must be day, ever, month, week or year",
        ),
        ("budgets: [{project: a, per: day, limit: -1}]", "budgets[0].limit: -1 is out of range"),
        (
            "budgets: [{project: a, per: day, limit: 1}, {project: a, per: day, limit: 2}]",
            "budgets[1]: is a second budget of project 'a' per day; remove one",
        ),
        ("policy: {depth: 0}", "policy.depth: 0 is too small; the minimum is 1"),
        ("policy: {unknown_runtime: 0s}", "policy.unknown_runtime: '0s' is out of range"),
        ("policy: {slow_after: 2m}", "policy.slow_after: '2m' is out of range"),
        ("policy: {slow_after: soon}", "policy.slow_after: 'soon' is not a duration"),
        (
            "policy: {wait: constant}",
            "policy.wait.constant.wait: is missing; write how long a job waits, such as 10m",
        ),
        ("policy: {wait: compute}", "policy.wait.compute.coefficient: is missing"),
        ("policy: {wait: {zero: {}, never: {}}}", "policy.wait: has 2 policies; write one"),
        (
            "policy: {wait: {zero: {max_wait: 1s, min_wait: 2s}}}",
            "policy.wait.zero.min_wait: is longer than max_wait",
        ),
        ("policy: {wait: {zero: {max_wait: [1]}}}", "policy.wait.zero.max_wait: must be a duration"),
        (
            "policy: {order: {fifo: {x: 1}}}",
            "policy.order.fifo.x: unknown option; this policy has no options",
        ),
        (
            "policy: {place: zzz}",
            "policy.place: 'zzz' is not a policy of the axis place; expected one of best_fit, first, first_fit",
        ),
        (
            "policy: {wait: break_even(0.1)}",
            "policy.wait: 'break_even(0.1)' is not a policy of the axis wait; write {break_even: {option: value}}",
        ),
        ("policy: {place: 5}", "policy.place: must be text or a mapping, found 5"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, problem: str) -> None:
    (told,) = refused(text)
    assert told.startswith(f"spill.yaml:3: {problem}")


@pytest.mark.parametrize(
    "text", ["", "- a", "x", "apiVersion: spillover/v1", "a: [", "--- {}\n--- {a: 1}\n", "a: 1\na: 2"]
)
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(BadForm):
        read_config(text.encode(), "spill.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("spill.example.org", ("spill.example.org", 0)),
        ("10.0.0.1:443", ("10.0.0.1", 443)),
        ("[fd00::5]:1", ("fd00::5", 1)),
    ],
)
def test_where_rented_machines_reach_the_server_is_a_host_with_or_without_a_port(
    text: str, told: tuple[str, int]
) -> None:
    assert read(f'agents: {{address: "{text}"}}').address == told


@pytest.mark.parametrize("text", ["http://spill", "a b", "host:port", "host:70000", ":7071"])
def test_what_is_not_where_machines_reach_a_server_is_refused(text: str) -> None:
    with pytest.raises(BadForm, match="write HOST or HOST:PORT"):
        read(f'agents: {{address: "{text}"}}')


def test_the_bounds_of_any_wait_are_read_for_an_installed_policy_too() -> None:
    config = read("policy: {wait: {mine: {soon: 5m, max_wait: 1h, max_queue: 3}}}", policies={"wait.mine"})
    assert config.policies.wait == Choice("mine", {"soon": "5m", "max_wait": HOUR, "max_queue": 3})
    (told,) = refused("policy: {wait: {mine: {max_wait: soon}}}", policies={"wait.mine"})
    assert "policy.wait.mine.max_wait: 'soon' is not a duration" in told


def test_an_installed_policy_checks_its_own_options() -> None:
    config = read("policy: {wait: {mine: {soon: 5m, really: true}}}", policies={"wait.mine", "order.fifo"})
    assert config.policies.wait == Choice("mine", {"soon": "5m", "really": True})
    (told,) = refused("policy: {wait: {mine: {soon: [1]}}}", policies={"wait.mine"})
    assert "must be text, a number, true or false" in told


def test_how_long_a_policy_of_ones_own_may_take_is_read() -> None:
    assert read("policy: {slow_after: 50ms}").slow_after == SECOND // 20
    assert read("").slow_after == default_config().slow_after == SECOND // 4


def test_an_installed_policy_that_cannot_be_made_is_refused_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Half:
        def __init__(self, share: int) -> None:
            raise ValueError(f"{share} is no share")

    class Point:
        name = "wait.half"
        load = staticmethod(lambda: Half)

    monkeypatch.setattr("spillover.policies.loading._points", lambda: (Point,))
    monkeypatch.setattr("spillover.forms.policies.installed", lambda: (*OPTIONS, "wait.half"))
    told = "policy wait: half: 7 is no share"
    assert refused("policy:\n  wait: {half: {share: 7}}\n") == [f"spill.yaml:4: policy.wait: {told}"]


def test_the_built_in_policies_are_known() -> None:
    assert set(OPTIONS) <= set(installed())


@pytest.mark.parametrize(
    "wait", ["zero", "never", "{constant: {wait: 10m}}", "{compute: {coefficient: 0.1, max_wait: 1h}}"]
)
def test_what_is_read_can_be_loaded(wait: str) -> None:
    chosen = read(f"policy: {{wait: {wait}, order: priority, backfill: strict, place: first_fit}}").policies
    assert load(chosen).chosen == chosen


def test_an_agent_does_not_offer_what_agents_cannot_run() -> None:
    assert refused(
        "clusters: [{name: a, local: [{name: n, cpu: 1, offers: [fast, container, python]}]}]"
    ) == [
        "spill.yaml:3: clusters[0].local[0].offers[1]: agents that can run container jobs offer this automatically; remove 'container'",
        "spill.yaml:3: clusters[0].local[0].offers[2]: agents that can run python jobs offer this automatically; remove 'python'",
    ]


def test_who_may_change_whose_jobs_is_read() -> None:
    assert read("").access == Access()
    found = read("access: {changes: project, maintainers: {vision: [ada, bob]}, max_priority: {submit: 100}}")
    assert found.access == Access("project", {"vision": ("ada", "bob")}, {TokenRole.SUBMIT: 100})


def test_prices_and_budgets_are_read() -> None:
    config = read_config(
        HEAD
        + """
clusters:
- name: whole
  role: rented
  price: {node: {name: g5, cpu: 4, memory: 16Gi, gpu: 1, hour: 1.006}, egress_gb: 0.09}
  billing: {step: 1m, minimum: 5m}
  startup: 2m
budgets:
- {project: vision, per: month, limit: 500}
- {project: "*", per: month, limit: 100}
- {user: ada, per: ever, limit: 0}
"""
    )
    (cluster,) = config.clusters
    node = NodeClass("g5", Resources(4000, 16 * 2**30, 1), 1_006_000)
    assert cluster.price == Price(node=node, egress_gb=90_000)
    assert cluster.startup == 2 * MINUTE
    assert config.budgets == (
        Budget(Of.PROJECT, "vision", Per.MONTH, 500 * MONEY),
        Budget(Of.PROJECT, "*", Per.MONTH, 100 * MONEY),
        Budget(Of.USER, "ada", Per.EVER, 0),
    )


def test_all_that_is_wrong_with_a_budget_is_told_at_once() -> None:
    head = "apiVersion: spillover/v1\nkind: Config\n"
    text = "budgets:\n- {project: vision, per: day, limit: 1}\n- {project: vision, user: ada, per: fortnight, limit: -1}\n"
    with pytest.raises(BadForm) as caught:
        read_config(head + text)
    assert [(each.line, each.path) for each in caught.value.problems] == [
        (5, "budgets[1].per"),
        (5, "budgets[1]"),
        (5, "budgets[1].limit"),
    ]
    with pytest.raises(BadForm) as caught:
        read_config(head + text.replace("fortnight", "week"))
    assert [each.path for each in caught.value.problems] == ["budgets[1]", "budgets[1].limit"]


def test_bounds_of_files_are_read() -> None:
    text = (
        HEAD
        + "blobs: {max_file: 1Gi, max_total: 100Gi}\nfiles: {max_inputs: 10Mi, max_outputs: 20M, max_state: 30M}\n"
    )
    config = read_config(text)
    assert config.blobs == BlobBounds(2**30, 100 * 2**30)
    assert (config.max_inputs, config.max_outputs, config.max_state) == (
        10 * 2**20,
        20_000_000,
        30_000_000,
    )
    assert read_config(HEAD).blobs == BlobBounds(10 * 2**30, None)


def test_bounds_of_files_that_make_no_sense_are_told() -> None:
    with pytest.raises(BadForm) as bad:
        read_config(HEAD + "blobs: {max_file: 0, max_total: x}\nfiles: {max_inputs: -1}\n")
    assert [problem.path for problem in bad.value.problems] == [
        "blobs.max_file",
        "blobs.max_total",
        "files.max_inputs",
    ]


def test_limits_are_read() -> None:
    text = (
        HEAD
        + "limits: {body: 1Mi, queued: null, queued_per_project: 5, submissions_per_second: {rate: 0.5}}\n"
    )
    assert read_config(text).limits == LimitsConfig(2**20, None, 5, RateConfig(0.5, 1000))
    assert read_config(HEAD).limits == LimitsConfig(64 * 2**20, 1_000_000, None, None, 2_000, 10 * SECOND)
    limits = read_config(HEAD + "limits: {connections: 50, head_time: 1m}\n").limits
    assert (limits.connections, limits.head_time) == (50, MINUTE)


def test_jobs_that_are_too_large_are_refused_unless_they_may_wait() -> None:
    assert read_config(HEAD).limits.too_large == "refuse"
    assert read_config(HEAD + "limits: {too_large: wait}\n").limits.too_large == "wait"


def test_levels_of_a_cluster_are_labels_of_its_nodes() -> None:
    text = HEAD + "clusters: [{name: lab, levels: [zone, {rack: example.com/rack}]}]\n"
    [spec] = read_config(text).clusters
    assert spec.levels == (Level("zone", "zone"), Level("rack", "example.com/rack"))
    assert spec.level_names == ("zone", "rack", "node")


def test_levels_that_make_no_sense_are_told() -> None:
    with pytest.raises(BadForm) as bad:
        read_config(
            HEAD + "clusters: [{name: lab, levels: [rack, {rack: r}, node, {a: b, c: d}, {x: ''}, a b]}]\n"
        )
    assert [(problem.path, problem.message.split(";")[0]) for problem in bad.value.problems] == [
        ("clusters[0].levels[1]", "'rack' is listed twice"),
        ("clusters[0].levels[2]", "node is always the lowest level"),
        ("clusters[0].levels[3]", "is not one level"),
        ("clusters[0].levels[4]", "'' is not a label"),
        ("clusters[0].levels[5]", "'a b' is not a valid name"),
    ]


def test_limits_that_make_no_sense_are_told() -> None:
    with pytest.raises(BadForm) as bad:
        read_config(HEAD + "limits: {body: 2Gi, queued: 0, submissions_per_second: {rate: 0, burst: 0}}\n")
    assert {problem.path for problem in bad.value.problems} >= {
        "limits.queued",
        "limits.submissions_per_second.rate",
        "limits.submissions_per_second.burst",
    }
    with pytest.raises(BadForm) as bad:
        read_config(HEAD + "limits: {connections: 9}\n")
    assert [problem.path for problem in bad.value.problems] == ["limits.connections"]
    with pytest.raises(BadForm) as bad:
        read_config(HEAD + "limits: {head_time: 6m}\n")
    assert [problem.path for problem in bad.value.problems] == ["limits.head_time"]
    for size in ("2Gi", "1Ki", "soon"):
        with pytest.raises(BadForm) as bad:
            read_config(HEAD + f"limits: {{body: {size}}}\n")
        assert [problem.path for problem in bad.value.problems] == ["limits.body"]


def test_a_kubernetes_cluster_is_read() -> None:
    config = read("""\
clusters:
- name: cloud
  kind: kubernetes
  role: rented
  region: eu-west
  labels: {team: vision}
  limits: {jobs: 50, cpu: 16, gpu: 2}
  price: {gpu_hour: 2.5}
  kubernetes: {kubeconfig: /etc/kube, context: c, namespace: batch, image: busybox, bind_within: 1m, keep: 0s}
""")
    assert config.clusters == (
        ClusterSpec(
            ClusterName("cloud"),
            "kubernetes",
            Role.RENTED,
            Price(gpu_hour=2_500_000),
            gangs=True,
            region="eu-west",
            labels={"team": "vision"},
            runs=("command", "constraints", "exclusive"),
            most=Resources(16_000, 0, 2),
            most_jobs=50,
        ),
    )
    form = config.forms[ClusterName("cloud")]
    assert form == KubernetesDoc(
        "/etc/kube", "c", namespace="batch", image="busybox", bind_within="1m", keep="0s"
    )
    patience = Patience(MINUTE, 10 * MINUTE, 5 * MINUTE, 0)
    assert load_kinds()["kubernetes"].manner(form) == Manner(patience, 2 * MINUTE)


@pytest.mark.parametrize("key", ["backoff", "shun_for"])
def test_the_backoff_of_a_cluster_is_read_by_its_old_name_too(key: str) -> None:
    config = read(f"clusters: [{{name: k, kind: kubernetes, kubernetes: {{{key}: 90s}}}}]")
    patience = load_kinds()["kubernetes"].manner(config.forms[ClusterName("k")]).patience
    assert patience.backoff == 90 * SECOND


def test_without_an_image_a_kubernetes_cluster_runs_no_commands() -> None:
    (spec,) = read("clusters: [{name: k, kind: kubernetes}]").clusters
    assert spec.runs == ("constraints", "exclusive")


@pytest.mark.parametrize("name", ["jump", "away"])
def test_a_clock_must_be_believed_for_a_minute_at_the_least(name: str) -> None:
    with pytest.raises(BadForm, match=rf"clock.{name}: '59s' is out of range; the minimum is 1m"):
        read_config(f"clock: {{{name}: 59s}}")


def test_a_local_agent_is_told_its_environments(tmp_path: Path) -> None:
    text = "clusters: [{name: a, local: [{name: n, cpu: 1, environments: {ml: PLACE}}]}]"
    config = read(text.replace("PLACE", str(tmp_path)))
    (agent,) = agents_of(config)
    assert f"--environment=ml={tmp_path}" in agent.options
    assert refused(text.replace("PLACE", "gone")) == [
        "spill.yaml:3: clusters[0].local[0].environments.ml: there is no 'gone'; make it with `python3 -m venv`, or name an interpreter"
    ]
