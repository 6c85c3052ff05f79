"""The options of every provider have the same names and meanings in spill.yaml, in the environment and on the command line."""

from pathlib import Path

import pytest
from msgspec import Struct, structs

from spillover.config.clusteroption import read_options
from spillover.config.pools import variable_of
from spillover.config.read import read_config
from spillover.forms.problems import BadForm
from spillover.model.ids import ClusterName
from spillover.providers.registry import load_providers
from tests.support.fluxburst import put_toy

CLOUD = ClusterName("cloud")
HEAD = "apiVersion: spillover/v1\nkind: Config\n"
OFFER = "cpu: 4, memory: 16Gi, hour: 0.2"
ZONE = "eu-central-1a"
ZONED = ("aws", "gce")

OPTIONS: dict[str, dict[str, str]] = {
    "process": {
        "boot": "2s",
        "capacity": "3",
        "fail": "[3, 5]",
        "lose": "0.25",
        "refuse": '{"*/a/*": capacity, small/b/spot: quota}',
        "spot_for": "5m",
        "seed": "7",
    },
    "podman": {
        "image": "localhost/spillover",
        "network": "host",
        "engine": "/usr/bin/podman",
        "engine_options": '["--volume=/data:/data:ro", --privileged]',
        "program": "/opt/bin/spill",
    },
    "command": {
        "create": "/etc/create.py --zone a",
        "list": "/etc/list.py",
        "destroy": "/etc/destroy.py",
        "env": "{REGION: north, LEVEL: '3'}",
        "timeout": "90s",
        "at_once": "2",
        "program": "/opt/bin/spill",
    },
    "command with clusters": {
        "create": "/etc/create.py",
        "list": "/etc/list.py",
        "destroy": "/etc/destroy.py",
        "kubeconfig": "/etc/kubeconfig.py",
        "resize": "/etc/resize.py",
    },
    "aws": {
        "region": "eu-central-1",
        "image": "ami-0123456789abcdef0",
        "images": "{g5: ami-0aaaaaaaaaaaaaaaa}",
        "launch_template": "batch:3",
        "subnets": "{eu-central-1a: subnet-0aaa}",
        "security_groups": "[sg-0ccc, sg-0ddd]",
        "public_ip": "false",
        "key": "ops",
        "instance_profile": "batch",
        "placement_group": "close",
        "disk": "100Gi",
        "disk_type": "gp2",
        "tags": "{team: physics}",
        "setup": '["echo one, two", "true"]',
        "program": "/opt/bin/spill",
        "profile": "batch",
        "endpoint": "http://127.0.0.1:5000",
    },
    "gce": {
        "project": "physics",
        "credentials": "gcloud",
        "image": "projects/lab/global/images/batch",
        "disk_gb": "40",
        "disk_type": "pd-ssd",
        "network": "global/networks/batch",
        "subnetwork": "regions/us-east1/subnetworks/batch",
        "public_ip": "false",
        "tags": "[batch, inside]",
        "service_account": "batch@physics.iam.gserviceaccount.com",
        "accelerator": "nvidia-tesla-t4",
        "setup": '["true"]',
        "program": "/opt/bin/spill",
        "endpoint": "http://127.0.0.1:5000/compute/v1",
    },
    "hetzner": {
        "token_file": "~/token",
        "image": "debian-12",
        "ssh_keys": "[ops]",
        "networks": "[17, 18]",
        "firewalls": "[4]",
        "ipv4": "false",
        "ipv6": "true",
        "setup": "[echo hello]",
        "program": "/opt/bin/spill",
        "endpoint": "http://127.0.0.1:5000/v1",
    },
    "kubernetes": {
        "kubeconfig": "/etc/kubeconfig",
        "context": "batch",
        "in_cluster": "false",
        "namespace": "machines",
        "image": "registry/spillover",
        "bind_within": "10m",
        "pod": "{nodeSelector: {pool: batch}, tolerations: [{key: batch, operator: Exists}]}",
        "annotations": "{team: physics}",
        "program": "/opt/bin/spill",
        "machine_deployment": "batch/workers",
        "management_kubeconfig": "/etc/management",
        "management_context": "management",
    },
    "clusterapi": {
        "kubeconfig": "/etc/kubeconfig",
        "context": "management",
        "in_cluster": "false",
        "namespace": "clusters",
        "cluster_class": "batch/workers",
        "kubeconfig_secret": "user-kubeconfig",
        "version": "v1.33.1",
        "worker_class": "batch-worker",
        "control_plane_replicas": "3",
        "variables": "{region: north, sizes: [1, 2]}",
        "type_variable": "type",
        "zone_variable": "zone",
        "spot_variable": "spot",
        "network": "{pods: {cidrBlocks: [10.0.0.0/16]}}",
        "labels": "{team: physics}",
    },
    "fluxburst": {"plugin": "toy", "params": "{cloud: /tmp/cloud, nodes: 2}", "python": "/opt/bin/python"},
}
"""A value for every option of every provider, as somebody writes it in one word."""
CLUSTERS = ("clusterapi", "command with clusters")
"""Those that make whole clusters."""


@pytest.fixture(autouse=True)
def _toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin of flux-burst to name."""
    put_toy(tmp_path / "packages")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))


def in_file(case: str, options: dict[str, str]) -> Struct:
    """Return the options as spill.yaml has them."""
    provider, kind = case.split(maxsplit=1)[0], "kubernetes" if case in CLUSTERS else "agents"
    told = ", ".join(f"{name}: {text}" for name, text in options.items())
    more = f", zones: [{ZONE}]" if provider in ZONED else ", nodes: 1..4" if case in CLUSTERS else ""
    pool = f"provider: {{{provider}: {{{told}}}}}, offers: [{{type: small, {OFFER}{more}}}]"
    text = f"{HEAD}clusters: [{{name: cloud, kind: {kind}, role: rented, pool: {{{pool}}}}}]\n"
    return read_config(text).providers[CLOUD]


def on_the_command_line(case: str, options: dict[str, str]) -> Struct:
    provider, kind = case.split(maxsplit=1)[0], "kubernetes" if case in CLUSTERS else "agents"
    told = ",".join(f"{name}={text}" for name, text in options.items())
    more = f",zone={ZONE}" if provider in ZONED else ",nodes=1..4" if case in CLUSTERS else ""
    offer = f"small({OFFER.replace(': ', '=').replace(', ', ',')}{more})"
    return read_options([f"cloud={kind}:rented,pool={provider}({told}),offer={offer}"]).providers[CLOUD]


@pytest.mark.parametrize("provider", OPTIONS)
def test_every_option_is_the_same_in_file_environment_and_command_line(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = OPTIONS[provider]
    written = in_file(provider, options)
    assert on_the_command_line(provider, options) == written
    for name, text in options.items():
        monkeypatch.setenv(variable_of("cloud", name), text)
    assert in_file(provider, {}) == written


def test_no_provider_and_no_option_is_missing_here() -> None:
    here: dict[str, set[str]] = {}
    for case, options in OPTIONS.items():
        here.setdefault(case.split()[0], set()).update(options)
    assert here == {
        name: {each.name for each in structs.fields(kind.form)} for name, kind in load_providers().items()
    }


@pytest.mark.parametrize(
    ("provider", "option", "text", "told"),
    [
        ("aws", "security_groups", "sg-0ccc", "must be a list, found the text 'sg-0ccc'"),
        ("aws", "security_groups", "[sg-0ccc", "must be a list, found the text '[sg-0ccc'"),
        ("aws", "tags", "[a]", "must be a mapping, found a list"),
        ("hetzner", "networks", "[one]", "must be a whole number, found the text 'one'"),
        ("gce", "public_ip", "maybe", "must be true or false, found the text 'maybe'"),
    ],
)
def test_a_word_that_does_not_fit_is_told_in_one_line_with_its_variable(
    provider: str, option: str, text: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable_of("cloud", option), text)
    with pytest.raises(BadForm) as error:
        in_file(provider, {})
    lines = [line for line in str(error.value).splitlines() if variable_of("cloud", option) in line]
    assert len(lines) == 1
    assert lines[0].endswith(told)
