"""A client that answers from memory, builders of views, and a way to type commands."""

import hashlib
import io
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import pytest

from spillover.cli.main import main
from spillover.cli.printing.output import Output
from spillover.client import Client
from spillover.client.no_effect import warn_of
from spillover.wire.api import (
    AgentView,
    AuditView,
    ClusterVerdict,
    ClusterView,
    EventView,
    Forecast,
    Hours,
    JobDetail,
    JobView,
    NotificationView,
    PolicyAxis,
    PolicyView,
    QueueView,
    ReasonView,
    ServerView,
    UsageReport,
    UsageView,
    WhyView,
)

JOB = "abcdefghijkl"


def a_reason(
    message: str = "owned capacity had room", code: str = "room_owned", *, never: bool = False
) -> ReasonView:
    return ReasonView(code=code, message=message, never=never)


def a_job(**changes: Any) -> JobDetail:
    """A job that succeeded on owned capacity, unless told otherwise."""
    usual: dict[str, Any] = {
        "id": JOB,
        "name": "train",
        "user": "mira",
        "project": "vision",
        "queue": "default",
        "state": "SUCCEEDED",
        "cluster": "onprem",
        "node": "n1",
        "attempt": 1,
        "reason": None,
        "submitted_at": "2026-01-31T10:00:00.000000Z",
        "started_at": "2026-01-31T10:00:05.000000Z",
        "finished_at": "2026-01-31T10:01:05.000000Z",
        "exit_code": 0,
        "signal": None,
        "cost": 0.0,
        "estimate_s": 45.0,
        "estimate_from": "default",
        "resources": {"cpu": 2.0, "memory": 2.0**30, "gpu": 0.0},
        "placed_because": a_reason(),
    }
    return JobDetail(**(usual | changes))


def a_queued_job(**changes: Any) -> JobDetail:
    """A job that waits for owned room."""
    usual: dict[str, Any] = {
        "state": "QUEUED",
        "cluster": None,
        "node": None,
        "attempt": 0,
        "started_at": None,
        "finished_at": None,
        "exit_code": None,
        "placed_because": None,
        "reason": a_reason("waits for 2 CPU on one machine of onprem", "no_room"),
    }
    return a_job(**(usual | changes))


def a_failed_job(**changes: Any) -> JobDetail:
    """A job whose process ended with code 3."""
    return a_job(
        **(
            {
                "state": "FAILED",
                "exit_code": 3,
                "reason": a_reason("exited with code 3", "exited", never=True),
            }
            | changes
        )
    )


class FakeClient:
    """Answers what it was told to, and remembers what it was asked."""

    user = "mira"

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.known: list[JobDetail] = [a_job()]
        self.ends: list[Any] = []
        """What each call of `wait` answers or raises, in turn; the known jobs when it is empty."""
        self.output: dict[bool, list[bytes]] = {False: [], True: []}
        """Pieces of stdout (False) and stderr (True)."""
        self.forecasts: list[Forecast] = []
        self.history: list[EventView] = []
        self.changed: list[str] | None = None
        """What an action changes; None is what it was asked for."""
        self.ignored: list[str] = []
        """What submitted jobs ask for and what has no effect."""

    def policy(self) -> PolicyView:
        """Return an order that looks at priorities."""
        axis = PolicyAxis("order", "priority", "priority", {}, installed=False, failures=0, error=None)
        return PolicyView("order=priority", [axis], 1000, 60.0, None, None, None, "", differs=False)

    def queues(self) -> list[QueueView]:
        """Return no named queues."""
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def pack(
        self, documents: Sequence[dict[str, Any]], *, progress: object, sizes: object
    ) -> Sequence[dict[str, Any]]:
        return documents

    def put_blob(self, source: Path) -> str:
        return hashlib.sha256(source.read_bytes()).hexdigest()

    def submit(self, documents: Sequence[dict[str, Any]]) -> list[str]:
        self.asked.append(("submit", list(documents)))
        warn_of(self.ignored)
        return [f"{number:012}" for number, _ in enumerate(documents)]

    def forecast(self, documents: Sequence[dict[str, Any]]) -> list[Forecast]:
        self.asked.append(("forecast", list(documents)))
        warn_of(self.ignored)
        return self.forecasts

    def jobs(self, **query: Any) -> Iterator[JobView]:
        self.asked.append(("jobs", query))
        return iter(self.known)

    def job(self, ref: str) -> JobDetail:
        self.asked.append(("job", ref))
        return self.known[0]

    def why(self, ref: str) -> WhyView:
        self.asked.append(("why", ref))
        return WhyView(
            id=JOB,
            state="QUEUED",
            reason=a_reason("waits for 2 CPU on one machine of onprem", "no_room"),
            sentence="train waits for 2 CPU on one machine of onprem.",
            waiting_since="2026-01-31T10:00:00.000000Z",
            waited_s=90.0,
            spills_at="2026-01-31T10:05:00.000000Z",
            spills_in_s=210.0,
            ahead=3,
            estimate_s=45.0,
            estimate_from="walltime",
            clusters=[
                ClusterVerdict(
                    "onprem", "owned", a_reason("waits for 2 CPU on one machine of onprem", "no_room")
                ),
                ClusterVerdict("cloud", "rented", None),
            ],
        )

    def _act(self, act: str, refs: Sequence[str], how: dict[str, Any]) -> list[str]:
        self.asked.append((act, *refs, how) if how else (act, *refs))
        return self.changed if self.changed is not None else list(refs) if how else [JOB for _ in refs]

    def cancel(self, *refs: str, **how: Any) -> list[str]:
        return self._act("cancel", refs, how)

    def hold(self, *refs: str, **how: Any) -> list[str]:
        return self._act("hold", refs, how)

    def release(self, *refs: str, **how: Any) -> list[str]:
        return self._act("release", refs, how)

    def requeue(self, *refs: str, **how: Any) -> list[str]:
        return self._act("requeue", refs, how)

    def audit(self, **query: Any) -> list[AuditView]:
        self.asked.append(("audit", query))
        stopped = AuditView(
            12, "2027-01-31T18:00:00Z", "ada", "job_stopping", JOB, "vision", "stop requested by ada (cancel)"
        )
        token = AuditView(
            7, "2027-01-31T17:00:00Z", "bob", "token_created", None, None, "bob created token t1"
        )
        return [stopped, token][: query["limit"]]

    def notifications(self, **query: Any) -> list[NotificationView]:
        self.asked.append(("notifications", query))
        at, text = "2027-01-31T18:00:00Z", "job train (k4x2m7p3vqwe) of project vision failed"
        shared = ("chat", "webhook/chat", "fail", text, "vision", at)
        failed = NotificationView("n1", *shared, "failed", 9, at, "answered with status 500")
        waiting = NotificationView("n2", *shared, "waiting", 0, at, None)
        return [failed] if query["failed"] else [failed, waiting][: query["limit"]]

    def retry_notifications(self, *ids: str, failed: bool) -> list[str]:
        self.asked.append(("retry", *ids, failed))
        return list(ids or ("n1",))

    def drop_notifications(self, *ids: str, failed: bool) -> list[str]:
        self.asked.append(("drop", *ids, failed))
        return list(ids or ("n1",))

    def test_notification(self, to: str) -> str:
        self.asked.append(("test", to))
        return "n3"

    def usage(self, **query: Any) -> UsageReport:
        self.asked.append(("usage", query))
        none = Hours(0.0, 0.0, 0.0)
        ada = UsageView(
            {"user": "ada", "project": "vision"},
            12,
            Hours(100.25, 0.0, 400.0),
            Hours(8.0, 2.0, 32.0),
            Hours(100.0, 0.0, 400.0),
            Hours(25.0, 0.0, 300.0),
            12.5,
        )
        bob = UsageView({"user": "bob", "project": "vision"}, 1, Hours(0.01, 0.0, 0.0), none, none, none, 0.0)
        total = UsageView({}, 13, Hours(100.26, 0.0, 400.0), ada.rented, ada.measured, ada.unused, 12.5)
        return UsageReport(["user", "project"], None, "USD", [ada, bob], total)

    def rerun(self, *refs: str, **how: Any) -> list[str]:
        self.asked.append(("rerun", *refs, how))
        warn_of(self.ignored)
        return [JOB for _ in refs]

    def change(self, ref: str, **fields: Any) -> list[str]:
        self.asked.append(("change", ref, fields))
        warn_of(self.ignored)
        return [JOB]

    def wait(self, *refs: str, timeout: float | None = None) -> list[JobDetail]:
        self.asked.append(("wait", *refs, timeout))
        answer = self.ends.pop(0) if self.ends else self.known
        if isinstance(answer, BaseException):
            raise answer
        return cast("list[JobDetail]", answer)

    def logs(self, ref: str, **how: Any) -> Iterator[bytes]:
        self.asked.append(("logs", ref, how))
        return iter(self.output[how["stderr"]])

    def events(self, **how: Any) -> Iterator[EventView]:
        self.asked.append(("events", how))
        return iter(self.history)

    def clusters(self) -> list[ClusterView]:
        whole = {"cpu": 2.0, "memory": 4 * 2.0**30, "gpu": 0.0}
        used = {"cpu": 1.5, "memory": 2.0**29, "gpu": 0.0}
        return [
            ClusterView("onprem", "agents", "owned", "READY", 1, whole, used, 2, {}),
            ClusterView(
                "cloud", "agents", "rented", "READY", 1, whole, {}, 0, {"cpu_hour": 0.04, "gpu_hour": 2.5}
            ),
        ]

    def agents(self) -> list[AgentView]:
        whole = {"cpu": 2.0, "memory": 4 * 2.0**30}
        return [AgentView("n1", "onprem", "ready", whole, {"cpu": 1.0}, 1, 2, ["shell"], {}, None)]

    def server(self) -> ServerView:
        return ServerView("0.1.0", 1, True, True, None, "USD", 10, 0, 0, {})


class Typed(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture(name="client")
def _client() -> FakeClient:
    return FakeClient()


@pytest.fixture(name="a_job")
def _a_job() -> Callable[..., JobDetail]:
    return a_job


@pytest.fixture(name="a_queued_job")
def _a_queued_job() -> Callable[..., JobDetail]:
    return a_queued_job


@pytest.fixture(name="a_failed_job")
def _a_failed_job() -> Callable[..., JobDetail]:
    return a_failed_job


@pytest.fixture(name="a_reason")
def _a_reason() -> Callable[..., ReasonView]:
    return a_reason


class _Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal() -> Output:
    """A terminal of 80 columns; what was drawn is in its `out`."""
    return Output(_Terminal(), _Terminal(), width=80)


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are those of Greenwich."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def spill(
    client: FakeClient, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, _utc: None
) -> Callable[..., Typed]:
    """Type a command; the fake client answers it."""
    monkeypatch.delenv("SPILL_DEBUG", raising=False)

    def run(*arguments: str) -> Typed:
        code = main(arguments, connect=lambda _: cast("Client", client))
        out, err = capfdbinary.readouterr()
        return Typed(code, out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "surrogateescape"))

    return run
