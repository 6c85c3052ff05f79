"""`client.call` and `client.map` with a real server and a real agent, which most tests share."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import psutil
import pytest

from spillover.client import AsyncClient, CallFailed, Client, Refused, RemoteError, WaitTimeout
from tests.support.processes import ServerProcess, wait_until

# Nobody but this process can import the tests, so their functions travel whole, as those of a script do.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def client(standing: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(tmp_path)
    with Client(data=standing.data) as client:
        yield client


class Stranger(Exception):
    """Can be pickled and not be read again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raises(error: type[Exception], text: str) -> None:
    raise error(text)


def estrange() -> None:
    raise Stranger(1, 2)


def test_a_call_returns_what_the_function_does(client: Client) -> None:
    factor = 3
    call = client.call(lambda x, *, plus=0: factor * x + plus, 4, plus=0.5)
    assert call.result(timeout=60) == 12.5
    assert call.exception() is None
    assert call.done()
    assert client.job(call.job).name == "lambda"


def test_what_comes_back_is_of_the_callers_own_types(client: Client) -> None:
    made = client.call(lambda: {"at": Path("/a"), "error": Stranger, "set": {1, 2}}).result(60)
    assert made == {"at": Path("/a"), "error": Stranger, "set": {1, 2}}


def test_an_exception_is_raised_with_the_traceback_of_where_it_was(client: Client) -> None:
    call = client.call(raises, ZeroDivisionError, "of all things")
    with pytest.raises(ZeroDivisionError, match="of all things") as caught:
        call.result(60)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteError)
    assert "in raises\n    raise error(text)" in cause.traceback
    assert "worker.py" not in cause.traceback
    shown = client.job(call.job)
    assert (shown.state, shown.exit_code) == ("FAILED", 1)
    assert b"ZeroDivisionError: of all things" in b"".join(client.logs(call.job, stderr=True))


def test_an_exception_that_cannot_be_read_comes_as_text(client: Client) -> None:
    error = client.call(estrange).exception(60)
    assert type(error) is RemoteError
    assert "Stranger: 1 and 2" in str(error)
    assert "in estrange" in error.traceback


def test_what_cannot_be_pickled_says_so(client: Client) -> None:
    error = client.call(threading.Lock).exception(60)
    assert isinstance(error, TypeError)
    assert "pickle" in str(error)
    with pytest.raises(TypeError, match="pickle"):
        client.call(print, threading.Lock())


def test_a_map_of_a_thousand_comes_in_order_and_as_completed(client: Client) -> None:
    squares = client.map(lambda x: x * x, range(1000))
    assert list(squares) == [x * x for x in range(1000)]
    assert squares.done()
    assert squares[7].result() == 49
    assert squares[-1].job == f"{squares.job}.999"
    assert {(call.index, call.result()) for call in squares.as_completed()} == {
        (x, x * x) for x in range(1000)
    }
    array = client.job(squares.job).array
    assert array is not None
    assert array.counts == {"SUCCEEDED": 1000}


def test_a_map_takes_several_iterables_and_common_arguments(client: Client) -> None:
    made = client.map(lambda x, y, *, sign: (x, y, sign), [1, 2, 3], "ab", sign=-1)
    assert made.results(timeout=60) == [(1, "a", -1), (2, "b", -1)]


def test_a_map_of_nothing_is_nothing(client: Client) -> None:
    before = [job.id for job in client.jobs()]
    nothing = client.map(len, [])
    assert (len(nothing), list(nothing), nothing.done(), nothing.job) == (0, [], True, "")
    assert [job.id for job in client.jobs()] == before


def test_files_travel_with_calls_and_back(client: Client, tmp_path: Path) -> None:
    (tmp_path / "word.txt").write_text("hello")

    def shout(index: int) -> str:
        text = Path("word.txt").read_text().upper()
        Path("made.txt").write_text(f"{text} {index}")
        return text

    call = client.call(shout, 7, options={"inputs": [Path("word.txt")], "outputs": ["made.txt"]})
    assert call.result(60) == "HELLO"
    client.fetch(call.job, tmp_path / "back")
    assert (tmp_path / "back" / "made.txt").read_text() == "HELLO 7"
    assert list(client.map(shout, range(3), options={"inputs": ["*.txt"]})) == ["HELLO"] * 3


def test_a_call_whose_module_is_missing_there_is_an_error_of_the_client(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def work():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from only_here import work  # type: ignore[import-not-found] # noqa: PLC0415 - made by this test

    call = client.call(work, options={"workdir": "/"})
    with pytest.raises(CallFailed, match=r"No module named 'only_here'; .* must have the packages"):
        call.result(60)


def test_one_failure_of_a_map_is_its_own(client: Client) -> None:
    halves = client.map(lambda x: 10 // x, [1, 0, 2])
    assert isinstance(halves[1].exception(60), ZeroDivisionError)
    assert (halves[0].result(60), halves[2].result(60)) == (10, 5)
    with pytest.raises(ZeroDivisionError):
        halves.results(60)


def test_large_values_go_and_come_as_files(client: Client) -> None:
    data = os.urandom(3 << 20)
    assert client.call(lambda piece: piece[::-1], data).result(60) == data[::-1]
    sizes = client.map(bytes, [10, 20_000, 2 << 20]).results(60)
    assert [len(each) for each in sizes] == [10, 20_000, 2 << 20]


def test_output_is_that_of_its_call(client: Client) -> None:
    calls = client.map(lambda x: print("this is", x), range(3))  # noqa: T201 - that is the point
    assert calls.results(60) == [None, None, None]
    assert [b"".join(client.logs(calls[x].job)) for x in range(3)] == [b"this is %d\n" % x for x in range(3)]


def test_a_worker_that_is_killed_fails_its_call_only(client: Client) -> None:
    pid = client.call(os.getpid).result(60)
    slow = client.call(time.sleep, 600)
    wait_until(lambda: client.job(slow.job).state == "RUNNING", "the call to run")
    # Which of the workers has it is not told; the other has nothing to lose.
    for child in psutil.Process(pid).parent().children():  # type: ignore[union-attr]
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("runners.worker" in word for word in child.cmdline()):
                child.send_signal(signal.SIGKILL)
    error = slow.exception(60)
    assert isinstance(error, CallFailed)
    assert "signal 9" in str(error) or "SIGKILL" in str(error)
    assert client.call(lambda: "alive").result(60) == "alive"


def test_walltime_and_cancelling_end_calls(client: Client) -> None:
    late = client.call(time.sleep, 600, options={"walltime": "300ms", "grace": "1s"})
    error = late.exception(60)
    assert isinstance(error, CallFailed)
    assert error.state == "TIMED_OUT"
    long = client.map(time.sleep, [600] * 50)
    with pytest.raises(WaitTimeout):
        long[0].result(timeout=0.5)
    long.cancel()
    states = {call.exception(60).state for call in long.as_completed(60)}  # type: ignore[union-attr]
    assert states == {"CANCELLED"}


def test_a_call_has_its_folder_environment_and_name(client: Client, tmp_path: Path) -> None:
    def look() -> list[object]:
        return [Path.cwd(), os.environ["MINE"], os.environ["SPILL_JOB_ID"]]

    call = client.call(look, options={"env": {"MINE": "yes"}, "name": "looker", "project": "vision"})
    assert call.result(60) == [tmp_path, "yes", call.job]
    assert (client.job("looker").project, client.job("looker").id) == ("vision", call.job)


def test_the_same_results_for_asyncio(client: Client, standing: ServerProcess) -> None:
    async def use() -> None:
        async with AsyncClient(data=standing.data) as other:
            call = await other.call(divmod, 7, 2)
            assert await call.result(60) == (3, 1)
            assert await call.done()
            squares = await other.map(lambda x: x * x, range(20))
            assert [value async for value in squares] == [x * x for x in range(20)]
            assert {each.index async for each in squares.as_completed()} == set(range(20))
            assert isinstance(await (await other.call(raises, KeyError, "k")).exception(60), KeyError)

    asyncio.run(use())


def test_results_outlive_the_server(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(server.folder)
    with Client(data=server.data) as client:
        call = client.call(lambda: "kept")
        calls = client.map(int, ["1", "2"])
        assert (call.result(60), calls.results(60)) == ("kept", [1, 2])
    server.kill()
    server.up()
    with Client(data=server.data) as after:
        assert after.call_of(call.job).result(60) == "kept"
        assert after.map_of(calls.job).results(60) == [1, 2]
        assert after.call_of(calls[1].job).result(60) == 2
        with pytest.raises(Refused, match="is not an array"):
            after.map_of(call.job)


def test_the_job_file_calls_functions_of_modules(standing: ServerProcess) -> None:
    (standing.folder / "adding.py").write_text(
        "def add(a, b):\n    print('adding')\n    return {'sum': a + b}\n"
    )
    job = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: adder}
spec: {python: {call: "adding:add", args: [1, 2]}}
"""
    submitted = standing.spill("submit", "-", "--wait", typed=job)
    assert (submitted.returncode, submitted.stderr) == (0, "")
    assert standing.spill("logs", "adder").stdout == "adding\n"


def test_a_module_travels_as_an_input_and_what_it_wrote_comes_back(standing: ServerProcess) -> None:
    (standing.folder / "writing.py").write_text(
        "import pathlib\n\ndef write(text):\n    pathlib.Path('made.txt').write_text(text)\n    return pathlib.Path(__file__).parent.name\n"
    )
    job = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: writer}
spec: {python: {call: "writing:write", args: [hello]}, inputs: [writing.py], outputs: [made.txt]}
"""
    submitted = standing.spill("submit", "-", "--wait", typed=job)
    assert (submitted.returncode, submitted.stderr) == (0, "spill: 1 file, 125B to send\n")
    (standing.folder / "writing.py").unlink()
    fetched = standing.spill("fetch", "writer", "back")
    assert fetched.returncode == 0, fetched
    assert (standing.folder / "back" / "made.txt").read_text() == "hello"
    with Client(data=standing.data) as client:
        assert client.call_of("writer").result(60) != standing.folder.name


def test_the_example_does_what_it_says(standing: ServerProcess) -> None:
    example = Path(__file__).parents[2] / "examples" / "calls.py"
    done = subprocess.run(
        [sys.executable, str(example)],
        env=os.environ | {"SPILL_DATA": str(standing.data)},
        cwd=standing.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    sums, pi, raised = done.stdout.splitlines()
    assert sums == "1 + 2 + 3 = 6"
    assert pi in {f"pi is about 3.{digits}" for digits in (12, 13, 14, 15, 16)}
    assert raised.startswith("and this was raised there: ValueError(")
