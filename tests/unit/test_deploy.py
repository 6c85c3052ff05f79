"""What is in deploy/ says what it should: forms are checked, and every command in it is one that the command line takes."""

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from spillover.cli.main import load, make_parser
from spillover.config.read import read_config
from spillover.model.units import SECOND, parse_duration
from spillover.wire.clusterfile import KubernetesDoc

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONFIGURED = sorted((DEPLOY / "kubernetes").glob("**/spill.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
WORDS = {"type": "array", "items": {"type": "string"}}
DURATION = {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}
SERVICE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["image"],
    "properties": {
        "image": {"type": "string"},
        "init": {"type": "boolean"},
        "cap_drop": WORDS,
        "security_opt": WORDS,
        "build": {
            "type": "object",
            "additionalProperties": False,
            "required": ["context"],
            "properties": {"context": {"type": "string"}, "dockerfile": {"type": "string"}},
        },
        "entrypoint": WORDS,
        "command": WORDS,
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "depends_on": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["condition"],
                "properties": {
                    "condition": {
                        "enum": ["service_started", "service_healthy", "service_completed_successfully"]
                    }
                },
            },
        },
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
        "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^[a-z./]+:/[a-z./]+(:ro)?$"}},
        "healthcheck": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"disable": {"const": True}},
        },
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "stop_grace_period": DURATION,
    },
}
COMPOSE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["services"],
    "patternProperties": {"^x-": {}},
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {"type": "object", "additionalProperties": SERVICE},
        "volumes": {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": False},
        },
    },
}
"""The form of what is used here of the compose specification."""


def parsed(words: list[str]) -> Any:
    """What the command line makes of a command; raises if it does not take it."""
    name, *rest = words
    return make_parser(name, load(name)).read(rest)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def commands_of(service: dict[str, Any]) -> list[list[str]]:
    """The `spill` commands of a service: its own, or those of a line for the shell."""
    if "entrypoint" not in service:
        return [service["command"]]
    assert service["entrypoint"] == ["sh", "-c"]
    (line,) = service["command"]
    found = [shlex.split(part) for part in line.replace("||", ";").replace(" > ", " ; ").split(";")]
    return [words[1:] for words in found if words[:1] == ["spill"]]


def test_compose_has_the_form_that_it_should(compose: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(COMPOSE).validate(compose)


def test_a_wrong_compose_file_is_found(compose: dict[str, Any]) -> None:
    wrongs: list[dict[str, Any]] = [
        {"comand": ["up"]},
        {"restart": "never"},
        {"ports": ["7070"]},
        {"depends_on": {"server": {}}},
    ]
    for wrong in wrongs:
        services = compose["services"] | {"server": compose["services"]["server"] | wrong}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(COMPOSE).validate(compose | {"services": services})


def test_compose_names_what_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in compose["volumes"]
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    waited_for = {
        name
        for each in services.values()
        for name, how in each.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    assert all("healthcheck" not in services[name] for name in waited_for), "they have that of the image"


def test_every_command_in_compose_is_one(compose: dict[str, Any]) -> None:
    found = {name: commands_of(service) for name, service in compose["services"].items()}
    assert {words[0] for commands in found.values() for words in commands} == {"cert", "up", "token", "agent"}
    for commands in found.values():
        for words in commands:
            parsed(words)


def test_agents_of_compose_have_the_time_to_drain(compose: dict[str, Any]) -> None:
    agent = compose["services"]["agent"]
    drains = parsed(agent["command"]).drain_timeout
    drains = drains if isinstance(drains, int) else parse_duration(drains)
    assert parse_duration(agent["stop_grace_period"]) >= drains + 10 * SECOND


def test_the_server_of_compose_is_configured(compose: dict[str, Any]) -> None:
    config = read_config((DEPLOY / "spill.yaml").read_bytes(), "spill.yaml")
    assert config.data == "/data"
    ports = {int(port.rpartition(":")[2]) for port in compose["services"]["server"]["ports"]}
    assert ports == {config.http.port, config.grpc.port}
    agent = parsed(compose["services"]["agent"]["command"])
    assert agent.cluster in {cluster.name for cluster in config.clusters}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile, one instruction each."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


@pytest.mark.parametrize("path", CONFIGURED, ids=lambda path: path.parent.name)
def test_servers_in_kubernetes_are_configured(path: Path) -> None:
    """What the cluster makes of it all is in tests/kube."""
    config = read_config(path.read_bytes(), path.name)
    (form, *_) = [each for each in config.forms.values() if isinstance(each, KubernetesDoc)]
    assert form.in_cluster
    assert config.tls is not None
    assert str(config.data) == "/data"


def test_servers_in_kubernetes_start_with_a_command_that_there_is() -> None:
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes" / "base" / "server.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    options = parsed(container["args"])
    assert options.standby
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    config = read_config((DEPLOY / "kubernetes" / "base" / "spill.yaml").read_bytes())
    assert config.tls is not None
    assert {str(Path(options.config).parent), str(Path(config.tls.cert).parent), config.data} <= mounts
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"http": config.http.port, "grpc": config.grpc.port}
    assert {each["targetPort"] for each in service["spec"]["ports"]} == ports.keys()


def test_the_image_is_built_of_what_is_there_and_runs_as_nobody_special() -> None:
    found = instructions()
    assert found[0] == ("ARG", "BASE=python:3.13-slim")
    assert [words for name, words in found if name == "FROM"] == ["${BASE} AS build", "${BASE}"]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name, words in found:
        if name == "COPY" and "--from" not in words:
            for source in words.split()[:-1]:
                assert (ROOT / source).exists()
                assert any(source == each or source.startswith(f"{each}/") for each in allowed)
    names = [name for name, _ in found]
    assert dict(found)["USER"] == "spillover"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert yaml.safe_load(dict(found)["ENTRYPOINT"]) == ["spill"]
    parsed(yaml.safe_load(dict(found)["CMD"]))
    check = yaml.safe_load(dict(found)["HEALTHCHECK"].partition("CMD ")[2])
    compile(check[2], "health check", "exec")


def unit(path: Path) -> configparser.ConfigParser:
    """A unit, each setting once."""
    found = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(path.read_text())
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_there_is(path: Path) -> None:
    service = unit(path)["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0] == "/opt/spillover/bin/spill"
    parsed([word for word in words[1:] if not word.startswith("$AGENT_OPTIONS")])
    assert service["KillMode"] == "mixed"


def test_the_agent_may_keep_tasks_apart_and_has_the_time_to_drain() -> None:
    service = unit(DEPLOY / "systemd" / "spill-agent.service")["Service"]
    assert service["Delegate"] == "yes"
    assert service["OOMPolicy"] == "continue"
    words = shlex.split(service["ExecStart"])
    drains = parse_duration(words[words.index("--drain-timeout") + 1])
    assert parse_duration(service["TimeoutStopSec"].replace("min", "m")) >= drains + 30 * SECOND


def verify(folder: Path, old: str = "", new: str = "") -> list[str]:
    """What systemd says of the units, with something replaced."""
    for path in UNITS:
        text = path.read_text().replace("/opt/spillover/bin/spill", "/bin/true")
        (folder / path.name).write_text(text.replace(old, new))
    words = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(folder.glob("*.service")))]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
    return [line for line in said.splitlines() if "spill-" in line]


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here to verify units with"
)
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    assert verify(tmp_path) == []
    assert len(verify(tmp_path, "KillMode=", "KilMode=")) == len(UNITS), "it would say so"
