"""Generates load: each kind is a round that repeats in its own thread and checks its own results."""

import contextlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import httpx
from msgspec import Struct

from spillover.client import Client, Refused, SpillError
from spillover.client.calling import CallOptions
from spillover.model.units import SECOND, format_time
from spillover.wire.api import JobView
from tests.support.processes import clean_environment

T = TypeVar("T")

PATIENCE: Final = 60.0
"""Seconds for the jobs of a round to end, although agents restart meanwhile and the machine may be busy."""
RETRY: Final = {"lost": 100}
OWNED: Final = {"cluster": ["local", "pool"]}
"""Our own agents, some of which come and go."""


class Surprise(AssertionError):
    """A result differs from the expected one."""


class Target(Struct, frozen=True):
    """The server under load."""

    url: str
    data: Path
    token: str


class Load:
    """Runs all rounds."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target = target
        self.expected: dict[str, str] = {}
        """The state in which each job or array must end, by id."""
        self.sizes: dict[str, int] = {}
        """Number of members of arrays whose ends are counted."""
        self.done: Counter[str] = Counter()
        """Completed rounds of each kind."""
        self.wrong: list[str] = []
        """Unexpected results."""
        self.stopping = threading.Event()
        self._seed = seed
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Repeat all rounds until `rest`."""
        self.stopping.clear()
        self._threads = [
            threading.Thread(target=self._play, args=(number, round_), daemon=True, name=round_.__name__)
            for number, round_ in enumerate(ROUNDS)
        ]
        for thread in self._threads:
            thread.start()

    def rest(self) -> None:
        """Let all rounds end."""
        self.stopping.set()
        for thread in self._threads:
            thread.join(3 * PATIENCE)
            if thread.is_alive():
                self.wrong.append(f"{thread.name} did not end")

    def give_up(self) -> None:
        """Cancel jobs that have not ended, and record them as wrong."""
        with Client(data=self.target.data) as client:
            left = [
                job.id
                for state in ("HELD", "QUEUED", "PLACED", "RUNNING")
                for job in client.jobs(state=state)
            ]
            self.wrong += [f"{job} did not end: {client.why(job).sentence}" for job in left]
            client.cancel(*left)

    def _play(self, number: int, round_: "Round") -> None:
        dice = random.Random(self._seed * 1000 + number)
        while not self.stopping.is_set():
            try:
                # A new client each time, because connections of real users come and go too.
                with Client(data=self.target.data) as client:
                    for _ in range(dice.randint(1, 5)):
                        round_(self, client, dice)
                        self.done[round_.__name__] += 1
                        if self.stopping.wait(dice.uniform(0.1, 1.0)):
                            break
            except Exception as error:  # noqa: BLE001 - any error is unexpected
                told = "".join(traceback.format_exception_only(error)).strip()
                self.wrong.append(f"{round_.__name__}: {told}")
                self.stopping.wait(1)

    # --- for rounds

    def submit(self, client: Client, state: str = "SUCCEEDED", **fields: Any) -> str:
        """Submit a job that must end in this state."""
        fields.setdefault("retry", RETRY)
        fields.setdefault("where", OWNED)
        (job,) = client.submit(**fields)
        self.expected[job] = state
        if "array" in fields:
            first, last = map(int, fields["array"].split("-"))
            self.sizes[job] = last - first + 1
        return job

    def ended(self, client: Client, *jobs: str) -> list[JobView]:
        """Wait for jobs, and check that each ended as expected."""
        views = client.wait(*jobs, timeout=PATIENCE)
        for view in views:
            if view.state != self.expected[view.id]:
                raise Surprise(f"{view.id} is {view.state}, not {self.expected[view.id]}: {view.reason}")
        return views


Round: TypeAlias = Callable[[Load, Client, random.Random], None]


def must(got: object, wanted: object, what: str) -> None:
    """Raise unless two values are equal."""
    if got != wanted:
        raise Surprise(f"{what}: {str(got)[:200]!r}, not {str(wanted)[:200]!r}")


@contextlib.contextmanager
def left(stream: Iterator[T]) -> Iterator[Iterator[T]]:
    """Close a stream before its end."""
    try:
        yield stream
    finally:
        if isinstance(stream, Generator):
            stream.close()


# --- rounds


def arrays(load: Load, client: Client, dice: random.Random) -> None:
    """Run many short members; in some arrays one of them fails."""
    fails = dice.random() < 0.2
    run = 'test "$SPILL_ARRAY_INDEX" != 3' if fails else "true"
    job = load.submit(
        client,
        "FAILED" if fails else "SUCCEEDED",
        name="many",
        run=run,
        array=f"1-{dice.choice((5, 20, 50))}",
    )
    load.ended(client, job)


def commands(load: Load, client: Client, dice: random.Random) -> None:
    """Run a command and read its output, and run one that fails."""
    text = "x" * dice.choice((10, 1_000, 100_000))
    good = load.submit(client, name="prints", run=f"printf %s {text[:1000]}")
    bad = load.submit(client, "FAILED", name="fails", run="echo oops >&2; exit 3")
    load.ended(client, good, bad)
    # The output is lost with its agent.
    with contextlib.suppress(Refused):
        must(b"".join(client.logs(good)), text[:1000].encode(), "what a command printed")


def followed(load: Load, client: Client, dice: random.Random) -> None:
    """Follow output while it is written, once to the end and once only for a while."""
    lines = dice.choice((5, 20))
    run = f"for i in $(seq {lines}); do echo line $i; sleep 0.05; done"
    job = load.submit(client, name="talks", run=run, where={"cluster": "local"})
    with left(client.logs(job, follow=True)) as pieces:
        next(pieces, None)
    heard = b"".join(client.logs(job, follow=True)).decode()
    (view,) = load.ended(client, job)
    if view.attempt == 1:  # a follower gets the output of all attempts
        must(heard, "".join(f"line {number}\n" for number in range(1, lines + 1)), "what was followed")


def watched(load: Load, client: Client, dice: random.Random) -> None:
    """Follow events for a while, and leave."""
    job = load.submit(client, name="seen", run="true")
    with left(client.events(0, follow=True, job=job)) as events:
        next(event for event in events if event.type == "job_ended")
    with left(client.events(client.server().revision - dice.randint(1, 3), follow=True)) as events:
        next(events)


def calls(load: Load, client: Client, dice: random.Random) -> None:
    """Call Python functions, and check what they return and raise."""
    items = [dice.randrange(1000) for _ in range(dice.choice((3, 30)))]
    options: CallOptions = {"retry": RETRY}
    squares = client.map(_square, items, options=options)
    load.expected[squares.job], load.sizes[squares.job] = "SUCCEEDED", len(items)
    must(list(squares.results(timeout=PATIENCE)), [item * item for item in items], "what calls returned")
    raised = client.call(_raise, options=options)
    load.expected[raised.job] = "FAILED"
    must(type(raised.exception(timeout=PATIENCE)), ZeroDivisionError, "what a call raised")
    large = client.call(bytes, 300_000, options=options)
    load.expected[large.job] = "SUCCEEDED"
    must(len(large.result(timeout=PATIENCE)), 300_000, "a large value")


def _square(number: int) -> int:
    return number * number


def _raise() -> float:
    return 1 / 0


def files(load: Load, client: Client, dice: random.Random) -> None:
    """Send files in and get them back, in various sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = dice.randbytes(dice.choice((10, 10_000, 2_000_000)))
        (folder / "in.bin").write_bytes(content)
        job = load.submit(
            client,
            name="copies",
            run="cp in.bin out.bin",
            inputs=[{"path": "in.bin"}],
            outputs=["out.bin"],
            workdir=str(folder),
        )
        load.ended(client, job)
        client.fetch(job, folder / "back")
        must((folder / "back" / "out.bin").read_bytes() == content, True, "a file that came back")


def cancels(load: Load, client: Client, dice: random.Random) -> None:
    """Cancel jobs that wait, run, or are held."""
    jobs = [load.submit(client, "CANCELLED", name="endless", run="exec sleep 600") for _ in range(3)]
    try:
        time.sleep(dice.uniform(0, 1))
        for job, change in ((jobs[0], client.hold), (jobs[1], client.requeue)):
            with contextlib.suppress(Refused):  # depends on how far the job is
                change(job)
    finally:
        client.cancel(*jobs)
    load.ended(client, *jobs)


def holds(load: Load, client: Client, _: random.Random) -> None:
    """Hold, change and release jobs, and run them in order."""
    soon = format_time(time.time_ns() + SECOND)
    first = load.submit(client, name="first", run="true", not_before=soon)
    later = load.submit(client, name="later", run="true", after=[{"job": first}])
    with contextlib.suppress(Refused):  # it may be placed already
        client.hold(first)
        client.change(first, estimate="1m")
        client.release(first)
    load.ended(client, first, later)


def keys(load: Load, client: Client, dice: random.Random) -> None:
    """Submit twice under one key, and expect one job."""
    key = f"key-{dice.getrandbits(64)}"
    job = load.submit(client, name="keyed", run="true", key=key)
    must(load.submit(client, name="keyed", run="true", key=key), job, "the second submission under a key")
    load.ended(client, job)
    must(load.submit(client, name="keyed", run="true", key=key), job, "the third, after its end")


def looks(load: Load, client: Client, dice: random.Random) -> None:
    """Only read: lists, reasons, forecasts, costs, metrics."""
    huge = load.submit(client, "CANCELLED", name="huge", run="true", cpu=500)
    client.why(huge)
    client.forecast(run="true", cpu=dice.randint(1, 8))
    list(itertools.islice(client.jobs(state=dice.choice((None, "QUEUED", "SUCCEEDED"))), 150))
    for ask in (client.overview, client.clusters, client.agents, client.costs, client.budgets, client.policy):
        ask()
    client.job(huge)
    client.cancel(huge)
    load.ended(client, huge)
    headers = {"Authorization": f"Bearer {load.target.token}"}
    httpx.get(f"{load.target.url}/metrics", headers=headers, timeout=30).raise_for_status()


def refusals(load: Load, client: Client, _: random.Random) -> None:
    """Send bad requests, which must be refused and change nothing."""
    asks: Iterable[Callable[[], object]] = (
        lambda: client.submit(run="true", cpu=-1),
        lambda: client.job("nobodyknowsit"),
        lambda: _with_a_wrong_token(load.target.url),
        lambda: client.submit(run="true", inputs=[{"path": "a", "digest": "0" * 64, "size": 3}]),
    )
    for ask in asks:
        try:
            ask()
        except SpillError:
            continue
        raise Surprise("something was accepted that must be refused")


def _with_a_wrong_token(url: str) -> None:
    with Client(server=url, token="wrong") as client:
        client.server()


def pods(load: Load, client: Client, dice: random.Random) -> None:
    """Run jobs on a Kubernetes cluster that succeed, fail, or are cancelled."""
    where = {"cluster": "kube"}
    good = [
        load.submit(client, name="pod", run=f"sleep {dice.uniform(0.1, 1):.2f}", where=where)
        for _ in range(3)
    ]
    bad = load.submit(client, "FAILED", name="badpod", run="exit 4", where=where)
    gone = load.submit(client, "CANCELLED", name="endlesspod", run="sleep 600", where=where)
    load.ended(client, *good, bad)
    client.cancel(gone)
    load.ended(client, gone)


def checkups(load: Load, _: Client, dice: random.Random) -> None:
    """Run `spill doctor` beside the running server; it may warn of lost agents, but must find no problem."""
    words = [
        "doctor",
        "--data",
        str(load.target.data),
        "--json",
        *(["--quick"] if dice.random() < 0.7 else []),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "spillover.cli", *words],
        env=clean_environment(),
        capture_output=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    findings = json.loads(done.stdout)["findings"]
    must([each for each in findings if each["level"] == "problem"], [], "what the doctor found")
    load.stopping.wait(dice.uniform(5, 15))


ROUNDS: Final[tuple[Round, ...]] = (
    arrays,
    commands,
    followed,
    watched,
    calls,
    files,
    cancels,
    holds,
    keys,
    looks,
    refusals,
    pods,
    checkups,
)
