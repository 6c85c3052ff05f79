"""A receiver of traces: a real HTTP server that decodes requests with the messages of OpenTelemetry."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_IDS = frozenset({"traceId", "spanId", "parentSpanId"})


class TraceReceiver:
    """What a receiver of traces got, and how it answers."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        """Status, headers and body of the next answers; then 200."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            """Takes requests of OTLP."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, headers, told = receiver.answers.pop(0) if receiver.answers else (200, {}, b"{}")
                receiver.paths.append(self.path)
                receiver.headers.append({key.lower(): value for key, value in self.headers.items()})
                if status == 200:
                    receiver.requests.append(decoded(body))
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("content-length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Its address, without the path of traces."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[Span]:
        """All spans that it took."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, Any]:
        """Return what the source of the last spans says about itself."""
        return attributes(self.requests[-1].resource_spans[0].resource)

    def named(self, name: str) -> list[Span]:
        """Return the spans of one name."""
        return [span for span in self.spans if span.name == name]

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def decoded(body: bytes) -> ExportTraceServiceRequest:
    """Decode a request of OTLP in JSON, whose ids are hexadecimal, unlike in JSON of protobuf; refuse unknown fields."""
    return json_format.Parse(json.dumps(_with_ids(json.loads(body))), ExportTraceServiceRequest())


def _with_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(each)).decode() if key in _IDS else _with_ids(each)
        for key, each in value.items()
    }


def attributes(message: Any) -> dict[str, Any]:
    """Return the attributes of a span or of a resource."""
    found: dict[str, Any] = {}
    for each in message.attributes:
        found[each.key] = getattr(each.value, each.value.WhichOneof("value"))
    return found


@contextmanager
def receiving(port: int = 0) -> Iterator[TraceReceiver]:
    """Run a receiver."""
    receiver = TraceReceiver(port)
    try:
        yield receiver
    finally:
        receiver.close()
