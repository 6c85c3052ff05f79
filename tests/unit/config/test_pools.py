"""The pool of a cluster in spill.yaml, in the environment and on the command line."""

import msgspec
import pytest

from spillover.clusters.kinds import load_kinds
from spillover.config.clusteroption import read_option, read_options
from spillover.config.clusters import Clusters, read_cluster
from spillover.config.config import Config
from spillover.config.pools import variable_of
from spillover.config.read import read_config
from spillover.forms.problems import BadForm, Findings
from spillover.forms.schema import config_schema
from spillover.model.budget import Per
from spillover.model.cluster import Billing, ClusterSpec
from spillover.model.ids import ClusterName
from spillover.model.pools import Offer, Pool, PoolBudget
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.ports.kinds import Flaw
from spillover.providers.process.provider import ProcessForm, ProcessKind
from spillover.server.clusters import Unusable, check_access

HEAD = "apiVersion: spillover/v1\nkind: Config\n"
CLOUD = ClusterName("cloud")
SMALL = "{type: small, cpu: 4, memory: 16Gi, hour: 0.2}"
GIB = 2**30


def read(pool: str, more: str = "role: rented") -> Config:
    text = f"{HEAD}clusters: [{{name: cloud, {more}, pool: {{{pool}}}}}]\n"
    return read_config(text.encode(), "spill.yaml")


def pool_of(config: Config | Clusters) -> Pool:
    specs = config.specs if isinstance(config, Clusters) else config.clusters
    assert specs[0].pool is not None
    return specs[0].pool


def refused(pool: str, more: str = "role: rented") -> str:
    """Return the only problem."""
    with pytest.raises(BadForm) as error:
        read(pool, more)
    (line,) = str(error.value).splitlines()
    return line.removeprefix("spill.yaml:3: clusters[0].")


def test_every_setting_of_a_pool_is_read() -> None:
    config = read_config(
        f"""{HEAD}
clusters:
- name: cloud
  role: rented
  pool:
    provider: {{process: {{boot: 2s, fail: [3], refuse: {{"*/a/*": capacity}}}}}}
    offers:
    - {{type: m7i.xlarge, cpu: 4, memory: 16Gi, hour: 0.08, spot: true, zones: [a, b]}}
    - {{type: m7i.xlarge, cpu: 4, memory: 16Gi, hour: 0.21, family: m7i}}
    - {{type: p5, cpu: 96, memory: 1Ti, gpu: 8, hour: 60, offers: ["gpu:h100"], labels: {{rack: r1}}}}
    billing: {{step: 1s, minimum: 60s}}
    min: 1
    max: 20
    boot: 45s
    join_within: 5m
    idle: 4m
    budget: {{per: day, limit: 50}}
    rate: 6
    alone_for: 1h
""".encode()
    )
    xlarge = Resources(4000, 16 * GIB)
    (spec,) = config.clusters
    assert spec.pool == Pool(
        "process",
        (
            Offer("m7i.xlarge", xlarge, 80_000, "a", spot=True),
            Offer("m7i.xlarge", xlarge, 80_000, "b", spot=True),
            Offer("m7i.xlarge", xlarge, 210_000, family="m7i"),
            Offer(
                "p5", Resources(96_000, 1024 * GIB, 8), 60_000_000, words=("gpu:h100",), labels={"rack": "r1"}
            ),
        ),
        1,
        20,
        45 * SECOND,
        5 * MINUTE,
        4 * MINUTE,
        PoolBudget(Per.DAY, 50_000_000),
        6,
        HOUR,
    )
    assert spec.billing == Billing(SECOND, MINUTE)
    form = ProcessForm("2s", fail=[3], refuse={"*/a/*": "capacity"})
    assert config.providers == {CLOUD: form}


def test_a_pool_needs_a_provider_and_an_offer_only() -> None:
    config = read(f"provider: process, offers: [{SMALL}]")
    assert pool_of(config) == Pool("process", (Offer("small", Resources(4000, 16 * GIB), 200_000),))
    assert config.providers == {CLOUD: ProcessForm()}
    assert read_config(f"{HEAD}clusters: [{{name: cloud, role: rented}}]".encode()).providers == {}


def test_machines_are_billed_as_the_cluster_says_unless_the_pool_does() -> None:
    hourly = read(f"provider: process, offers: [{SMALL}]", "role: rented, billing: {step: 1h}")
    assert hourly.clusters[0].billing == Billing(HOUR, 0)


def test_a_pool_without_a_provider_lists_those_there_are() -> None:
    line = refused(f"offers: [{SMALL}]")
    assert line.startswith("pool.provider: is missing; there are command, process, podman, ")
    assert line.endswith("; `process` is for trials: it starts agents on the server's machine")
    with pytest.raises(BadForm, match="is missing; there are command, process, podman, "):
        read_options(["cloud=agents:rented,offer=small(cpu=1,memory=1Gi,hour=1)"])


@pytest.mark.parametrize(
    ("pool", "line"),
    [
        ("provider: process", "pool.offers: is empty; add an offer, such as {type: small, cpu: 4, "),
        (
            "provider: process, offers: [{type: small, cpu: 4, memory: 16Gi}]",
            "pool.offers[0]: 'small' has no price; write `hour`, the price of one machine for an hour",
        ),
        (
            f"provider: process, offers: [{SMALL}, {SMALL}]",
            "pool.offers[1]: 'small' is offered twice on the on-demand market; remove one",
        ),
        (
            "provider: process, offers: [{type: a, cpu: 1, memory: 1Gi, hour: 1, spot: true, zones: [x, x]}]",
            "pool.offers[0]: 'a' is offered twice in zone 'x' on the spot market; remove one",
        ),
        (
            "provider: process, offers: [{type: a b, cpu: 1, memory: 1Gi, hour: 1}]",
            "pool.offers[0].type: 'a b' has spaces or other characters that no type has",
        ),
        (
            f"provider: process, offers: [{SMALL}], min: 3, max: 2",
            "pool.max: 2 is below min, 3; raise max or lower min",
        ),
        (
            f"provider: process, offers: [{SMALL}], min: 2",
            "pool.max: 1 is below min, 2; raise max or lower min",
        ),
        (
            f"provider: process, offers: [{SMALL}], boot: 90s, budget: {{per: day, limit: 0.04}}",
            "pool.budget.limit: 0.04 cannot pay for one machine: small//on-demand costs 0.0433 for 13m, the least that is held",
        ),
        (
            f"provider: process, offers: [{SMALL}], billing: {{step: 1h}}, budget: {{per: day, limit: 0.1}}",
            "pool.budget.limit: 0.1 cannot pay for one machine: small//on-demand costs 0.2000 for 1h,",
        ),
        (
            f"provider: process, offers: [{SMALL}], boot: 20m",
            "pool.join_within: '10m' is less than boot, 20m; write more",
        ),
        (f"provider: process, offers: [{SMALL}], idle: soon", "pool.idle: 'soon' is not a duration"),
        (
            f"provider: {{process: {{boots: 2s}}}}, offers: [{SMALL}]",
            "pool.provider.process.boots: unknown field",
        ),
        (
            f"provider: {{process: {{boot: x}}}}, offers: [{SMALL}]",
            "pool.provider.process.boot: 'x' is not a",
        ),
        (f"provider: {{process: {{fail: 2}}}}, offers: [{SMALL}]", "pool.provider.process.fail: "),
        (
            f"provider: {{process: {{}}, aws: {{}}}}, offers: [{SMALL}]",
            "pool.provider: is not one provider; write",
        ),
    ],
)
def test_what_is_wrong_with_a_pool_is_told_in_one_line(pool: str, line: str) -> None:
    assert refused(pool).startswith(line)


def test_an_unknown_provider_lists_those_there_are_and_what_to_install() -> None:
    line = refused(f"provider: ec2, offers: [{SMALL}]")
    assert line.startswith("pool.provider: 'ec2' is not a provider; there are ")
    assert "process" in line


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("role: owned", "pool: is only allowed with role: rented"),
        (
            "role: rented, kind: kubernetes",
            "pool.provider: process rents machines with these options, not whole clusters; write `kind: agents`",
        ),
        ("role: rented, price: {cpu_hour: 1}", "price: has prices that `pool` does not use; write"),
        ("role: rented, startup: 2m", "startup: is not allowed with `pool`; write `boot` in the pool"),
        ("role: rented, local: [{name: n, cpu: 1}]", "local: is not allowed with `pool`; move these agents"),
    ],
)
def test_a_pool_does_not_go_with_everything(more: str, line: str) -> None:
    assert refused(f"provider: process, offers: [{SMALL}]", more).startswith(line)


def test_billing_is_said_once() -> None:
    pool = f"provider: process, offers: [{SMALL}], billing: {{step: 1s}}"
    line = refused(pool, "role: rented, billing: {step: 1h}")
    assert line == "billing: is set in `pool` too; remove one of them"


def test_jobs_on_a_pool_have_the_price_of_their_share_of_a_machine() -> None:
    (spec,) = read(f"provider: process, offers: [{SMALL}]").clusters
    assert spec.pool is not None
    (offer,) = spec.pool.offers
    (machine,) = spec.price.machines
    assert (machine.name, machine.resources, machine.hour) == (offer.key, offer.resources, offer.hour)


CLUSTERS = "provider: {command: {create: c, list: l, destroy: d, kubeconfig: k, resize: r}}"
NODES = "{type: std, cpu: 4, memory: 16Gi, hour: 0.4, nodes: 2..8, cluster_hour: 0.1}"


def test_a_pool_of_a_kubernetes_cluster_makes_whole_clusters() -> None:
    config = read(f"{CLUSTERS}, offers: [{NODES}]", "role: rented, kind: kubernetes, region: eu")
    (spec,) = config.clusters
    (offer,) = pool_of(config).offers
    assert (offer.least, offer.nodes, offer.cluster_hour) == (2, 8, 100_000)
    assert spec.is_template
    assert not spec.external


@pytest.mark.parametrize(
    ("pool", "more", "problem"),
    [
        (
            f"{CLUSTERS}, offers: [{SMALL}]",
            "kind: kubernetes",
            "pool.offers[0]: has no `nodes`; write how many",
        ),
        (
            f"{CLUSTERS}, offers: [{NODES.replace('2..8', '8..2')}]",
            "kind: kubernetes",
            "pool.offers[0].nodes: '8..2' is not a range of nodes; write the smaller number first",
        ),
        (
            f"provider: process, offers: [{NODES.replace(', cluster_hour: 0.1', '')}]",
            "kind: agents",
            "pool.offers[0].nodes: is only for whole",
        ),
        (
            f"{CLUSTERS}, offers: [{NODES}]",
            "kind: agents",
            "pool.provider: command makes whole clusters with these options, not machines; write `kind: kubernetes`",
        ),
        (
            f"{CLUSTERS}, offers: [{NODES}]",
            "kind: kubernetes, kubernetes: {context: mine}",
            "kubernetes.context: is not allowed with `pool`: the provider says how to connect",
        ),
        (
            f"{CLUSTERS}, offers: [{NODES}], budget: {{per: day, limit: 0.0001}}",
            "kind: kubernetes",
            "pool.budget.limit: 0.0001 cannot pay for one cluster: std",
        ),
    ],
)
def test_what_is_wrong_with_a_pool_of_whole_clusters_is_said(pool: str, more: str, problem: str) -> None:
    assert refused(pool, f"role: rented, {more}").startswith(problem)


def test_what_leaves_a_pool_has_its_price() -> None:
    config = read(f"provider: process, offers: [{SMALL}]", "role: rented, price: {egress_gb: 0.1}")
    assert config.clusters[0].price.egress_gb == 100_000


def test_machines_have_names_that_agents_may_have() -> None:
    name = "c" * 60
    with pytest.raises(BadForm, match="is too long: machines are named"):
        read_config(
            f"{HEAD}clusters: [{{name: {name}, role: rented, pool: {{provider: process, offers: [{SMALL}]}}}}]"
        )


def test_problems_of_offers_that_a_provider_finds_stand_at_their_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check(self: ProcessKind, form: ProcessForm, offers: list[Offer]) -> list[Flaw]:
        return [
            Flaw(("offers", at, "type"), "is too big") for at, each in enumerate(offers) if each.type == "big"
        ]

    monkeypatch.setattr(ProcessKind, "check", check)
    big = "{type: big, cpu: 4, memory: 16Gi, hour: 0.2, zones: [z]}"
    small = "{type: small, cpu: 4, memory: 16Gi, hour: 0.2, zones: [a, b, c]}"
    assert refused(f"provider: process, offers: [{small}, {big}]") == "pool.offers[1].type: is too big"


def test_options_of_a_provider_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert variable_of("my-cloud.2", "spot_for") == "SPILL_POOL_MY_CLOUD_2_SPOT_FOR"
    pool = f"provider: {{process: {{boot: 2s, seed: 1}}}}, offers: [{SMALL}]"
    monkeypatch.setenv("SPILL_POOL_CLOUD_BOOT", "3s")
    monkeypatch.setenv("SPILL_POOL_CLOUD_CAPACITY", "7")
    config = read(pool)
    assert config.providers[CLOUD] == ProcessForm("3s", capacity=7, seed=1)
    assert "3s" not in config.entries[CLOUD], "the state keeps what the file says"
    monkeypatch.setenv("SPILL_POOL_CLOUD_CAPACITY", "many")
    line = refused(pool)
    assert line == (
        "pool.provider.process: SPILL_POOL_CLOUD_CAPACITY: must be a whole number, found the text 'many'"
    )


WORDS = "cloud=agents:rented,pool=process(boot=2s,capacity=3),offer=small(cpu=1,memory=1Gi,hour=0.1,spot,zone=a,zone=b)"


def test_a_pool_of_the_command_line_is_one_of_the_file() -> None:
    asked = read_options([f"{WORDS},offer=big(cpu=8,memory=8Gi,hour=1),min=1,max=5,idle=auto,budget=50/day"])
    written = read(
        "provider: {process: {boot: 2s, capacity: 3}}, offers: [{type: small, cpu: 1, memory: 1Gi, hour: 0.1, "
        "spot: true, zones: [a, b]}, {type: big, cpu: 8, memory: 8Gi, hour: 1}], min: 1, max: 5, "
        "budget: {per: day, limit: 50}"
    )
    assert asked.specs == written.clusters
    assert asked.providers == written.providers
    assert read_option(WORDS)["pool"]["provider"] == {"process": {"boot": "2s", "capacity": 3}}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("rented,pool=process", "offer: is empty; add an offer"),
        ("rented,pool=ec2,offer=a(cpu=1,memory=1Gi,hour=1)", "pool: 'ec2' is not a provider; there are "),
        (
            "rented,pool=process(boots=1)",
            "'boots' is not an option of the provider process; did you mean `boot`?",
        ),
        ("rented,pool=process,offer=a", "must have the form offer=TYPE(cpu=4,memory=16Gi,hour=0.2)"),
        ("rented,pool=process,offer=a(cpu=1,memory=1Gi)", "offer 1: 'a' has no price; write `hour`"),
        ("rented,pool=process,offer=a(cpu=1,memory=1Gi,hour=1,hour=2)", "hour is given twice; remove one"),
        ("rented,pool=process,offer=a(cpu,memory=1Gi,hour=1)", "cpu needs a value: cpu=..."),
        ("rented,pool=process,offer=a(cpu=1,memory=1Gi,hour=1),max=x", "max: must be a whole number"),
        ("rented,pool", "pool needs a value: pool=PROVIDER(OPTION=VALUE,...)"),
        ("pool=process,offer=a(cpu=1,memory=1Gi,hour=1)", "pool: is only allowed with role: rented"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told_in_one_line(words: str, line: str) -> None:
    with pytest.raises(BadForm) as error:
        read_options([f"cloud=agents:{words}"])
    (said,) = str(error.value).splitlines()
    assert line in said


def test_a_pool_can_be_added_to_a_running_server_as_its_entry_says() -> None:
    config = read(f"provider: {{process: {{boot: 2s}}}}, offers: [{SMALL}], max: 2")
    found = Findings()
    again = read_cluster(msgspec.json.decode(config.entries[CLOUD]), load_kinds(), found)
    assert again is not None, found.found
    assert (again.specs, again.providers) == (config.clusters, config.providers)


def test_what_a_provider_lacks_on_this_machine_is_told_before_the_server_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = read(f"provider: process, offers: [{SMALL}]")
    check_access(config)
    monkeypatch.setattr(ProcessKind, "requires", {"no_such_module": "spillover[toy]"})
    with pytest.raises(Unusable) as error:
        check_access(config)
    assert str(error.value) == (
        "cluster cloud: the provider process needs the Python module no_such_module; "
        "run: pip install 'spillover[toy]'"
    )


def test_the_schema_has_pools() -> None:
    schema = config_schema(load_kinds().config_doc)
    assert "PoolDoc" in str(schema)


def test_a_cluster_without_pool_has_none() -> None:
    (spec,) = read_config(f"{HEAD}clusters: [{{name: a, role: rented}}]".encode()).clusters
    assert isinstance(spec, ClusterSpec)
    assert spec.pool is None
