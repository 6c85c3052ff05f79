"""EC2 as an HTTP server: moto, in a wrapper that adds what moto leaves out, and faults on request.

moto keeps tokens and ignores them, refuses nothing, and always answers at once. The wrapper keeps orders with the same token
apart from others, finds machines by their tokens, and answers late, wrongly, in part or not at all.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from io import BytesIO
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree as ET

REGION: Final = "eu-central-1"
ZONES: Final = tuple(f"{REGION}{letter}" for letter in "abc")
KEYS: Final = {"AWS_ACCESS_KEY_ID": "AKIATESTING", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": ""}
_ACCOUNT: Final = "123456789012"
_XML: Final = "text/xml;charset=UTF-8"
_NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"
_SAME: Final = {"Action", "Version", "ClientToken"}
Asked = dict[str, str]


class Answer:
    """An answer of HTTP."""

    def __init__(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @classmethod
    def error(cls, code: str, status: int, message: str) -> "Answer":
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            "<RequestID>1</RequestID></Response>"
        )
        return cls(f"{status} Error", [("Content-Type", _XML)], text.encode())


class Fault:
    """What happens to the next requests of some kind."""

    def __init__(self, action: str, times: int, when: Callable[[Asked], bool]) -> None:
        self._action, self.times, self._when = action, times, when
        self.error: Answer | None = None
        self.before = self.after = False
        """Whether the connection ends without an answer: before the request is carried out, or after."""
        self.garbled = False
        self.go: threading.Event | None = None
        """The answer comes when this is set."""
        self.arrived = threading.Event()

    def is_for(self, action: str, asked: Asked) -> bool:
        return self.times > 0 and self._action in {action, "*"} and self._when(asked)


class Ec2Server:
    """One account in one region."""

    def __init__(self) -> None:
        # Images of AWS are read from a large file, and nobody needs them here.
        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
        from moto.moto_server.werkzeug_app import (  # noqa: PLC0415 - takes a second
            DomainDispatcherApplication,
            create_backend_app,
        )

        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: Final = self._socket.getsockname()[1]
        self.url: Final = f"http://127.0.0.1:{self.port}"
        self._server: Any = None
        self._thread = threading.Thread()
        self._client: Any = None
        self.reset()
        self.listen()

    def reset(self) -> None:
        """Forget machines, faults and calls."""
        self._faults: list[Fault] = []
        self._tokens: dict[tuple[str, str], tuple[object, str, Answer]] = {}
        self.hidden: set[str] = set()
        """Ids of machines that no listing shows yet."""
        self.lagging = False
        """Whether listings show no machine at all."""
        self.page: int | None = None
        """Most machines in an answer; None as asked for."""
        self.calls: list[tuple[str, Asked]] = []
        """All requests that arrived: their action and parameters."""
        self.keys: set[str] = set()
        """Access keys with which requests were signed."""
        self.backend.reservations.clear()

    @property
    def backend(self) -> Any:
        """What moto knows of the region."""
        from moto.ec2.models import ec2_backends  # noqa: PLC0415 - as above

        return ec2_backends[_ACCOUNT][REGION]

    @property
    def machines(self) -> list[Any]:
        """All machines that are not terminated."""
        return [
            machine
            for reservation in self.backend.reservations.values()
            for machine in reservation.instances
            if machine.state != "terminated"
        ]

    def image(self, architecture: str = "x86_64") -> str:
        """Return a new image."""
        made = self.client.register_image(Name=f"image-{time.monotonic_ns()}", RootDeviceName="/dev/sda1")
        self.backend.amis[made["ImageId"]].architecture = architecture
        return str(made["ImageId"])

    def subnet(self, zone: str) -> str:
        """Return the default subnet of a zone."""
        found = self.client.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [zone]}])
        return str(found["Subnets"][0]["SubnetId"])

    def security_group(self) -> str:
        """Return a security group."""
        return str(self.client.describe_security_groups()["SecurityGroups"][0]["GroupId"])

    def template(self, name: str, data: dict[str, Any]) -> None:
        """Create a launch template."""
        self.backend.launch_templates.clear()
        self.backend.launch_template_name_to_ids.clear()
        self.client.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)

    @property
    def client(self) -> Any:
        """A client of its own, whose calls are not counted."""
        import boto3  # noqa: PLC0415 - as above

        if self._client is None:
            self._client = boto3.client(
                "ec2",
                region_name=REGION,
                endpoint_url=f"{self.url}/uncounted",
                aws_access_key_id="x",
                aws_secret_access_key="y",
            )
        return self._client

    def count(self, action: str) -> int:
        """How many requests of a kind arrived."""
        return sum(called == action for called, _ in self.calls)

    # --- faults

    def fail(
        self,
        action: str,
        code: str,
        status: int = 400,
        times: int = 10**9,
        when: Callable[[Asked], bool] = lambda _: True,
        message: str = "the wrapper says so",
        headers: dict[str, str] | None = None,
    ) -> Fault:
        """Answer requests with an error, without carrying them out."""
        fault = self._add(action, times, when)
        fault.error = Answer.error(code, status, message)
        fault.error.headers += (headers or {}).items()
        return fault

    def lose(self, action: str, times: int = 1, *, arrives: bool) -> Fault:
        """Give no answer to requests, which are carried out or not."""
        fault = self._add(action, times)
        fault.before, fault.after = not arrives, arrives
        return fault

    def garble(self, action: str) -> Fault:
        """Carry requests out, and answer with something else."""
        fault = self._add(action, 10**9)
        fault.garbled = True
        return fault

    def accept(self, action: str) -> Fault:
        """Answer that requests succeeded, without carrying them out."""
        fault = self._add(action, 10**9)
        body = f'<{action}Response xmlns="{_NAMESPACE}"></{action}Response>'
        fault.error = Answer("200 OK", [("Content-Type", _XML)], body.encode())
        return fault

    def delay(self, action: str, times: int = 1) -> Fault:
        """Carry requests out, and answer when `go` of the result is set."""
        fault = self._add(action, times)
        fault.go = threading.Event()
        return fault

    def _add(self, action: str, times: int, when: Callable[[Asked], bool] = lambda _: True) -> Fault:
        fault = Fault(action, times, when)
        self._faults.append(fault)
        return fault

    def mend(self) -> None:
        """End all faults."""
        for fault in self._faults:
            fault.times = 0
            if fault.go is not None:
                fault.go.set()
        self._faults.clear()
        self.hidden.clear()
        self.lagging = False
        self.page = None
        for machine in self.machines:
            machine.disable_api_termination = False
        if self._server is None:
            self.listen()

    def listen(self) -> None:
        """Accept connections."""
        from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415 - as above

        class Quiet(WSGIRequestHandler):
            def log(self, *_: object) -> None: ...

        self._socket.listen(128)
        self._server = make_server(
            "127.0.0.1", self.port, self, threaded=True, request_handler=Quiet, fd=self._socket.fileno()
        )
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def refuse_connections(self) -> None:
        """Accept no connections until `mend`; nobody else gets the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = None
        self._socket.close()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self.port))

    def lose_tags(self, *but: str) -> None:
        """Remove the tags of all machines."""
        for machine in self.machines:
            self.backend.tags[machine.id] = {
                key: value for key, value in self.backend.tags[machine.id].items() if key in but
            }

    def take_back(self) -> None:
        """Interrupt all machines, as EC2 does with those of the spot market."""
        from moto.ec2.models.instances import StateReason  # noqa: PLC0415 - as above

        for machine in self.machines:
            machine.terminate()
            machine.state_reason = StateReason(
                "Server.SpotInstanceTermination: Spot instance termination", "Server.SpotInstanceTermination"
            )

    def close(self) -> None:
        """Stop."""
        self.mend()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._socket.close()

    # --- requests

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request of WSGI."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        asked = dict(parse_qsl(body.decode(), keep_blank_values=True))
        action = asked.get("Action", "")
        if environ["PATH_INFO"].startswith("/uncounted"):
            answer = self._ask(environ | {"PATH_INFO": "/"}, asked)
            start(answer.status, [each for each in answer.headers if each[0].lower() != "content-length"])
            return [answer.body]
        with self._lock:
            self.calls.append((action, asked))
            self.keys |= set(re.findall(r"Credential=(\w+)/", environ.get("HTTP_AUTHORIZATION", "")))
            fault = next((each for each in self._faults if each.is_for(action, asked)), None)
            if fault is not None:
                fault.times -= 1
        if fault is not None and fault.before:
            _hang_up(environ)
        answer = fault.error if fault is not None and fault.error else self._carry_out(environ, action, asked)
        if fault is not None:
            fault.arrived.set()
            if fault.go is not None:
                fault.go.wait(60)
            if fault.after:
                _hang_up(environ)
            if fault.garbled:
                answer = Answer("200 OK", [("Content-Type", _XML)], b"<html>a proxy says hello")
        start(answer.status, [each for each in answer.headers if each[0].lower() != "content-length"])
        return [answer.body]

    def _carry_out(self, environ: dict[str, Any], action: str, asked: Asked) -> Answer:
        if action == "RunInstances" and "DryRun" not in asked:
            with self._lock:  # two requests with one token make one machine
                return self._run(environ, asked)
        if action == "DescribeInstances":
            return self._list(environ, asked)
        return self._ask(environ, asked)

    def _run(self, environ: dict[str, Any], asked: Asked) -> Answer:
        """Create a machine, once for each token in a zone."""
        key = (asked.get("Placement.AvailabilityZone", "") or asked.get("SubnetId", ""), asked["ClientToken"])
        same = sorted((name, value) for name, value in asked.items() if name not in _SAME)
        if key in self._tokens:
            earlier, id_, answer = self._tokens[key]
            if self.backend.get_instance(id_).state == "terminated":
                return Answer.error("IdempotentInstanceTerminated", 400, f"{id_} is terminated")
            mismatch = Answer.error("IdempotentParameterMismatch", 400, "the parameters differ")
            return answer if same == earlier else mismatch
        answer = self._ask(environ, asked)
        if found := re.search(rb"<instanceId>(i-[0-9a-f]+)</instanceId>", answer.body):
            self._tokens[key] = (same, found[1].decode(), answer)
        return answer

    def _list(self, environ: dict[str, Any], asked: Asked) -> Answer:
        """List machines, also by their tokens; without hidden ones, and in small pages if so wanted."""
        token = None
        for name, value in list(asked.items()):
            if name.endswith(".Name") and value == "client-token":
                token = asked.pop(f"{name.removesuffix('.Name')}.Value.1")
                del asked[name]
        if self.page is not None:
            asked["MaxResults"] = str(self.page)
        answer = self._ask(environ, asked)
        if (token is None and not self.hidden and not self.lagging) or not answer.status.startswith("200"):
            return answer
        root = ET.fromstring(answer.body)
        reservations = root.find("{*}reservationSet")
        assert reservations is not None
        for item in list(reservations):
            its = item.findtext(".//{*}clientToken", "")
            unseen = self.lagging or item.findtext(".//{*}instanceId", "") in self.hidden
            if unseen or not fnmatchcase(its, token or "*"):
                reservations.remove(item)
        return Answer(answer.status, answer.headers, ET.tostring(root))

    def _ask(self, environ: dict[str, Any], asked: Asked) -> Answer:
        """Ask moto."""
        body = urlencode(asked).encode()
        told: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> Callable[[bytes], object]:
            told[:] = [status, headers]
            return lambda _: None

        inner = environ | {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        answered = self._moto(inner, start)
        return Answer(told[0], told[1], b"".join(answered))


def _hang_up(environ: dict[str, Any]) -> NoReturn:
    """End the connection of a request without an answer."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


@contextmanager
def ec2_server() -> Iterator[Ec2Server]:
    """Run a server, and stop it."""
    server = Ec2Server()
    try:
        yield server
    finally:
        server.close()
