"""Calls as futures of `concurrent.futures` and asyncio, and executors, with a real server and a real agent."""

import asyncio
import operator
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest

from spillover import AsyncClient, AsyncExecutor, Client, Executor
from spillover.client import CallCancelled, CallFailed, Unavailable, WaitTimeout
from spillover.client.asks import Ask
from tests.support.processes import ServerProcess, wait_until

cloudpickle.register_pickle_by_value(sys.modules[__name__])
LONG = {"walltime": "5m", "grace": "1s"}


@pytest.fixture
def client(standing: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(tmp_path)
    with Client(data=standing.data) as client:
        yield client


@pytest.fixture
def executor(client: Client) -> Iterator[Executor]:
    with Executor(client) as executor:
        yield executor


def square(x: int) -> int:
    return x * x


def fail(text: str) -> None:
    raise ValueError(text)


def test_a_call_is_a_future(client: Client) -> None:
    call = client.call(square, 7)
    assert isinstance(call, Future)
    assert call.result(60) == 49
    assert (call.done(), call.running(), call.cancelled(), call.exception(), call.cancel()) == (
        True,
        False,
        False,
        None,
        False,
    )


def test_wait_and_as_completed_take_calls_and_members_of_maps(client: Client) -> None:
    runs = client.map(square, range(3))
    calls = [*(client.call(square, x) for x in range(20)), runs[1], runs[2]]
    done, left = futures.wait(calls, timeout=60)
    assert (len(done), left) == (22, set())
    values = [each.result() for each in futures.as_completed([client.call(square, 3), *calls], timeout=60)]
    assert sorted(values) == sorted([9, *(x * x for x in range(20)), 1, 4])


def test_many_calls_are_waited_for_with_few_requests_and_one_thread(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillover.client.asynchronous.sender import AsyncSender  # noqa: PLC0415 - the thread's own

    asked: list[str] = []
    once = AsyncSender._once

    async def noted(self: AsyncSender, ask: Ask[Any]) -> object:
        asked.append(ask.path)
        return await once(self, ask)

    monkeypatch.setattr(AsyncSender, "_once", noted)
    calls = [client.call(square, x) for x in range(100)]
    client.map(square, range(2000)).results(60)
    before = set(threading.enumerate())
    futures.wait(calls, timeout=60)
    assert len(asked) < 10
    new = set(threading.enumerate()) - before
    assert not [each for each in new if each.name.startswith("Thread-")]
    assert len(new) <= 40  # those of one thread's own pool, which is bounded


def test_callbacks_are_called_when_a_call_has_ended(client: Client) -> None:
    told: list[object] = []
    came = threading.Event()

    def note(call: Future[int]) -> None:
        told.append(call.result())
        came.set()

    call = client.call(square, 8)
    call.add_done_callback(note)
    assert came.wait(60)
    call.add_done_callback(lambda each: told.append(each is call))
    assert told == [64, True]


def test_a_running_call_says_so_and_can_be_cancelled(client: Client) -> None:
    call = client.call(time.sleep, 600, options={"walltime": "5m", "grace": "1s"})
    wait_until(call.running, "the call to run")
    assert not call.done()
    assert re.fullmatch(rf"<Call sleep\(600\) job {call.job} running on local/\S+ for \S+>", repr(call))
    assert call.cancel()
    assert (call.done(), call.cancelled(), call.running(), call.cancel()) == (True, True, False, True)
    with pytest.raises(CancelledError):
        call.result()
    error = call.exception()
    assert isinstance(error, CallFailed)
    assert isinstance(error, CallCancelled)
    assert client.call_of(call.job).exception(60).state == "CANCELLED"  # type: ignore[union-attr]
    assert futures.wait([call], timeout=5).not_done == set()


def test_a_call_that_somebody_else_cancelled_is_cancelled(client: Client) -> None:
    call = client.call(time.sleep, 600, options={"walltime": "5m", "grace": "1s"})
    told = threading.Event()
    call.add_done_callback(lambda _: told.set())
    client.cancel(call.job)
    assert told.wait(60)
    assert call.cancelled()
    with pytest.raises(CallCancelled, match="CANCELLED"):
        call.result()


def test_a_timeout_says_why(client: Client) -> None:
    blocked = client.call(square, 1, options={"needs": ["nobody:has-this"]})
    try:
        for call in (blocked, client.call_of(blocked.job)):
            with pytest.raises(TimeoutError, match="nobody:has-this") as caught:
                call.result(0.2)
            assert isinstance(caught.value, WaitTimeout)
        blocked.add_done_callback(lambda _: None)
        with pytest.raises(WaitTimeout, match="nobody:has-this") as watched:
            blocked.result(0.2)
        assert "nobody:has-this" in watched.value.why
        runs = client.map(square, [1], options={"needs": ["nobody:has-this"]})
        with pytest.raises(WaitTimeout, match="nobody:has-this"):
            next(iter(runs.as_completed(0.2)))
        runs.cancel()
    finally:
        blocked.cancel()


def test_closing_the_client_tells_whoever_waits(standing: ServerProcess) -> None:
    client = Client(data=standing.data)
    call = client.call(square, 1, options={"needs": ["nobody:has-this"]})
    call.add_done_callback(lambda _: None)
    client.close()
    assert isinstance(call.exception(5), Unavailable)
    with Client(data=standing.data) as other:
        other.cancel(call.job)


def test_an_executor_is_one_of_concurrent_futures(executor: Executor) -> None:
    assert isinstance(executor, futures.Executor)
    call = executor.submit(pow, 2, 10)
    assert call.result(60) == 1024
    assert isinstance(executor.submit(fail, "no").exception(60), ValueError)
    assert list(executor.map(square, range(100))) == [x * x for x in range(100)]
    assert list(executor.map(operator.add, range(10), range(10, 20), chunksize=4)) == list(range(10, 30, 2))
    assert list(executor.map(square, [])) == []
    assert executor.submit(lambda *, options: options, options=3).result(60) == 3
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(square, [1], chunksize=0)


def test_a_map_that_takes_too_long_is_cancelled(client: Client, executor: Executor) -> None:
    before = {job.id for job in client.jobs(name="sleep")}
    values = executor.map(time.sleep, [0, 600], timeout=3)
    assert next(values) is None
    with pytest.raises(TimeoutError):
        next(values)
    (array,) = {job.id for job in client.jobs(name="sleep")} - before
    wait_until(lambda: client.job(array).state == "CANCELLED", "the map to be cancelled")


def test_an_executor_waits_for_its_calls_and_takes_no_more(standing: ServerProcess) -> None:
    with Executor(data=standing.data, options={"name": "of-an-executor"}) as executor:
        call = executor.submit(time.sleep, 0.5)
        executor.map(square, range(3))
    assert Future.done(call)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    with Client(data=standing.data) as client:
        states = {job.state for job in client.jobs(name="of-an-executor")}
    assert states == {"SUCCEEDED"}
    with pytest.raises(TypeError, match="`key`"):
        Executor(data=standing.data, options={"key": "x"})


def test_shutdown_can_cancel_what_does_not_run(client: Client) -> None:
    executor = Executor(client, options={"needs": ["nobody:has-this"]})
    call = executor.submit(square, 1)
    runs = executor.map(square, range(5))
    executor.shutdown(cancel_futures=True)
    assert call.cancelled()
    with pytest.raises(CancelledError):
        next(runs)


def test_asyncio_takes_calls_of_the_blocking_client_and_its_executor(executor: Executor) -> None:
    async def work() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        wrapped = asyncio.wrap_future(executor.submit(square, 5))
        return await wrapped, await loop.run_in_executor(executor, square, 6)

    assert asyncio.run(work()) == (25, 36)


async def test_calls_of_the_asyncio_client_are_awaited(standing: ServerProcess) -> None:
    async with AsyncClient(data=standing.data) as client:
        calls = [await client.call(square, x) for x in range(20)]
        assert await asyncio.gather(*calls) == [x * x for x in range(20)]
        runs = await client.map(square, range(10))
        assert await asyncio.gather(*(runs[index] for index in (3, 4))) == [9, 16]
        assert repr(calls[3]) == f"<AsyncCall square(3) job {calls[3].job} succeeded>"
        stuck = await client.call(square, 1, options={"needs": ["nobody:has-this"]})
        with pytest.raises(WaitTimeout, match="nobody:has-this"):
            await stuck.result(0.2)
        assert not await stuck.running()
        assert await stuck.cancel()
        with pytest.raises(CallCancelled):
            await stuck
        assert await stuck.cancelled()


async def test_an_executor_for_asyncio(standing: ServerProcess) -> None:
    async with AsyncExecutor(data=standing.data) as executor:
        assert await (await executor.submit(square, 9)) == 81
        assert [value async for value in executor.map(square, range(5))] == [0, 1, 4, 9, 16]
        chunked = executor.map(operator.add, range(5), range(5), chunksize=2)
        assert [value async for value in chunked] == [0, 2, 4, 6, 8]
        slow = await executor.submit(time.sleep, 0.3)
    async with AsyncClient(data=standing.data) as client:
        assert (await client.job(slow.job)).state == "SUCCEEDED"
    with pytest.raises(RuntimeError, match="after shutdown"):
        await executor.submit(square, 1)


def test_calls_and_maps_show_themselves(client: Client) -> None:
    call = client.call(square, 7)
    call.result(60)
    assert repr(call) == f"<Call square(7) job {call.job} succeeded>"
    failed = client.call(fail, "<b>")
    failed.exception(60)
    assert repr(failed).startswith(f"<Call fail('<b>') job {failed.job} failed: ")
    assert "fail(&#x27;&lt;b&gt;&#x27;)" in failed._repr_html_()
    runs = client.map(lambda x: 1 // x, [0, 1, 2, 4])
    futures.wait([runs[index] for index in range(4)], timeout=60)
    assert repr(runs) == f"<Map lambda job {runs.job} 4 of 4 done; 1 failed>"
    html = runs._repr_html_()
    assert "4 of 4 done; 1 failed" in html
    assert "width:75.00%" in html
    assert repr(client.map_of(runs.job)) == repr(runs)
    assert repr(client.map(square, [])) == "<Map of nothing>"
