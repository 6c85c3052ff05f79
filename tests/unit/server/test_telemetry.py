"""Where traces go: the configuration first, then the variables of OpenTelemetry."""

from typing import Any

import pytest

from spillover.config.config import TelemetryConfig
from spillover.config.read import read_config
from spillover.control.telemetry.exporting import Receiver
from spillover.forms.problems import BadForm
from spillover.server.telemetry import Telemetry, telemetry_of

HEADER = "apiVersion: spillover/v1\nkind: Config\n"


def found(environ: dict[str, str] | None = None, **settings: Any) -> Telemetry:
    return telemetry_of(TelemetryConfig(**settings), environ or {})


def receiver(environ: dict[str, str] | None = None, **settings: Any) -> Receiver:
    there = found(environ, **settings).receiver
    assert there is not None
    return there


def test_without_an_endpoint_nothing_is_exported() -> None:
    nothing = found()
    assert nothing.receiver is None
    assert nothing.exporter() is None
    assert nothing.tracer.share is None


def test_the_configuration_names_the_receiver() -> None:
    text = f"""{HEADER}telemetry:
  endpoint: https://otel.example.org/in/
  headers: {{authorization: Bearer x}}
  ca: ca.pem
  sample: 0.25
  service: lab
"""
    config = read_config(text)
    there = telemetry_of(config.telemetry, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318"})
    url = "https://otel.example.org/in/v1/traces"
    assert there.receiver == Receiver(url, {"authorization": "Bearer x"}, "ca.pem")
    assert there.tracer.share == 0.25
    assert there.resource["service.name"] == "lab"


def test_the_whole_address_for_traces_works_too() -> None:
    text = f"{HEADER}telemetry: {{endpoint: 'http://localhost:4318/v1/traces'}}\n"
    there = telemetry_of(read_config(text).telemetry, {})
    assert there.receiver is not None
    assert there.receiver.url == "http://localhost:4318/v1/traces"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("endpoint: localhost:4318", "is not a URL; write it like http://localhost:4318"),
        ("endpoint: grpc://localhost:4317", "is not a URL"),
        ("{endpoint: 'http://x', headers: {'a b': c}}", "is not a header"),
        ('{endpoint: "http://x", headers: {a: "b\\nc"}}', "is not a header"),
        ("endpoint: https://ada:hunter2@otel.example.org", "put a token into `telemetry.headers` instead"),
        (
            "{endpoint: 'http://otel.example.org', headers: {authorization: x}}",
            "'http://otel.example.org' would send the headers in the clear; write https, or an address of this machine",
        ),
        ("sample: 2", "1"),
        ("port: 1", "port"),
    ],
)
def test_a_receiver_that_cannot_be_is_told_with_its_line(lines: str, told: str) -> None:
    text = f"{HEADER}telemetry: {lines}\n" if lines[0] == "{" else f"{HEADER}telemetry:\n  {lines}\n"
    with pytest.raises(BadForm, match=r"spill\.yaml:[34]: telemetry") as error:
        read_config(text)
    assert told in str(error.value)


def test_the_variables_of_opentelemetry_name_it_too() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, other=1",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "other=2",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "ca.pem",
        "OTEL_SERVICE_NAME": "lab",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test,service.name=no",
    }
    there = found(environ)
    headers = {"api-key": "a b", "other": "2"}
    assert there.receiver == Receiver("https://collector:4318/v1/traces", headers, "ca.pem")
    assert there.tracer.share == 1.0
    assert there.resource["service.name"] == "lab"
    assert there.resource["deployment.environment"] == "test"
    assert "service.version" in there.resource


def test_an_endpoint_for_traces_alone_is_used_as_it_is() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:9/otlp",
    }
    assert receiver(environ).url == "http://traces:9/otlp"


def test_headers_of_the_configuration_add_to_those_of_variables() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=1,b=2",
    }
    assert receiver(environ, headers={"b": "3"}).headers == {"a": "1", "b": "3"}


@pytest.mark.parametrize(
    "more",
    [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}],
)
def test_variables_turn_off_what_variables_turn_on(more: dict[str, str]) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", **more}
    assert found(environ).receiver is None
    assert found(environ, endpoint="http://here:4318").receiver is not None


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "is not a URL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://ada:hunter2@otel"}, "has a user or a password"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, "would send the headers in the clear"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "set `telemetry.endpoint` to the port for HTTP"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "secret"}, "is not KEY=VALUE"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=%0a"}, "is not a header"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "x"}, "is not KEY=VALUE"),
    ],
)
def test_a_variable_that_cannot_be_used_costs_the_traces_and_not_the_start(
    more: dict[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", **more}
    assert found(environ).receiver is None
    assert told in capsys.readouterr().out
