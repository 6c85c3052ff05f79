"""Where traces go: what spill.yaml says, and else the standard variables of OpenTelemetry.

A variable that cannot be used costs the traces and a line in the log, not the start: other programs on the machine may
need it as it is.
"""

import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import structlog
from msgspec import Struct, field

from spillover import __version__
from spillover.config.config import TelemetryConfig
from spillover.config.read import is_header, wrong_endpoint
from spillover.control.telemetry.exporting import Exporter, Receiver
from spillover.control.telemetry.spans import Tracer, Value

log = structlog.get_logger()

PATH: Final = "/v1/traces"
SERVICE: Final = "spillover"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_CA: Final = ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE")
_PROTOCOL: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"


class Telemetry(Struct, frozen=True):
    """What a server does about traces."""

    receiver: Receiver | None = None
    """None if it exports none."""
    resource: dict[str, Value] = field(default_factory=dict)
    """What it says about itself."""
    tracer: Tracer = Tracer()

    def exporter(self) -> Exporter | None:
        """Return what delivers spans; None if there is no receiver."""
        return None if self.receiver is None else Exporter(self.receiver, self.resource)


class _Unusable(Exception):
    """A variable cannot be used; the message names it."""


def telemetry_of(config: TelemetryConfig, environ: Mapping[str, str]) -> Telemetry:
    """Return where traces go; those of spill.yaml count more than variables."""
    if config.endpoint is None and _disabled(environ):
        return Telemetry()
    try:
        receiver = _receiver(config, environ)
        resource: dict[str, Value] = {**_pairs(_RESOURCE, environ)}
    except _Unusable as error:
        log.warning("no traces are exported", error=str(error))
        return Telemetry()
    if receiver is None:
        return Telemetry()
    resource["service.name"] = (
        config.service
        or environ.get("OTEL_SERVICE_NAME")
        or str(resource.get("service.name") or "")
        or SERVICE
    )
    resource |= {"service.version": __version__, "host.name": socket.gethostname()}
    return Telemetry(receiver, resource, Tracer(config.sample))


def _disabled(environ: Mapping[str, str]) -> bool:
    """Return whether variables turn traces off."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return off or environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none"


def _receiver(config: TelemetryConfig, environ: Mapping[str, str]) -> Receiver | None:
    """Return the receiver; None if nobody names one. Raises _Unusable."""
    if config.endpoint is not None:
        whole = config.endpoint.endswith(PATH)  # as people copy it from the manual of a receiver
        return Receiver(config.endpoint if whole else _with_path(config.endpoint), config.headers, config.ca)
    name = _TRACES if environ.get(_TRACES) else _ENDPOINT
    if not (endpoint := environ.get(name, "").strip()):
        return None
    for each in _PROTOCOL:
        if environ.get(each, "").lower() == "grpc":
            told = (
                "is grpc, which is not supported; set `telemetry.endpoint` to the port for HTTP, usually 4318"
            )
            raise _Unusable(f"{each} {told}")
    headers = {**_pairs(_HEADERS[0], environ), **_pairs(_HEADERS[1], environ), **config.headers}
    if bad := [key for key, value in headers.items() if not is_header(key, value)]:
        raise _Unusable(f"{_HEADERS[0]}: {bad[0][:80]!r} is not a header")
    if wrong := wrong_endpoint(endpoint, headers):
        raise _Unusable(f"{name}: {wrong}")
    ca = config.ca or next((environ[each] for each in _CA if environ.get(each)), None)
    return Receiver(endpoint if name == _TRACES else _with_path(endpoint), headers, ca)


def _with_path(endpoint: str) -> str:
    return endpoint.rstrip("/") + PATH


def _pairs(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Read a list such as `a=1,b=2`, percent-encoded. Raises _Unusable."""
    found: dict[str, str] = {}
    for part in environ.get(name, "").split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise _Unusable(f"{name}: {part.strip()[:80]!r} is not KEY=VALUE")
        found[key.strip()] = unquote(value.strip())
    return found
