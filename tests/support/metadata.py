"""A small metadata service, as clouds have one on each machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EC2_PATH = "/latest/meta-data/spot/instance-action"
GCE_PATH = "/computeMetadata/v1/instance/preempted"


class MetadataService:
    """What it says, which tests change while it runs."""

    def __init__(self) -> None:
        self.url = ""
        self.notice = b""
        """The body of EC2's notice; empty if there is none."""
        self.preempted = b"FALSE"
        self.token = 0
        """Number of the token that is valid."""
        self.asked: list[str] = []
        self.broken = False

    def expire(self) -> None:
        """Make the tokens that were given invalid."""
        self.token += 1

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """Answer as the real ones do."""
        self.asked.append(f"{method} {path}")
        if self.broken:
            return 503, b"busy"
        if (method, path) == ("PUT", "/latest/api/token"):
            lasts = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            return (200, f"token{self.token}".encode()) if lasts.isdigit() else (400, b"")
        if (method, path) == ("GET", EC2_PATH):
            if headers.get("x-aws-ec2-metadata-token") != f"token{self.token}":
                return 401, b"unauthorized"
            return (200, self.notice) if self.notice else (404, b"not found")
        if (method, path) == ("GET", GCE_PATH):
            return (200, self.preempted) if headers.get("metadata-flavor") == "Google" else (403, b"")
        return 404, b"not found"


@contextmanager
def metadata_service() -> Iterator[MetadataService]:
    """Serve metadata on a free port of loopback."""
    service = MetadataService()

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            headers = {key.lower(): value for key, value in self.headers.items()}
            status, body = service.answer(self.command, self.path, headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = _reply  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
