"""How spans reach a receiver: a real one, that is slow, away, full, picky or back again."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from spillover.control.telemetry.exporting import BATCH, DELIVERED, DROPPED, REFUSED, Exporter, Receiver
from spillover.control.telemetry.spans import Span, SpanEvent, SpanStatus
from spillover.model.ids import JobId
from spillover.model.tracing import span_of, trace_of
from spillover.model.units import SECOND
from tests.support.otlp import attributes, receiving
from tests.support.waiting import until

NOON = 1_800_000_000 * SECOND


def a_span(number: int = 0, **fields: Any) -> Span:
    job = JobId(f"job{number}")
    return Span(trace_of(job), span_of(job), "", f"job {number}", NOON, NOON + SECOND, {}, **fields)


@asynccontextmanager
async def exporting(url: str, **options: Any) -> AsyncIterator[Exporter]:
    exporter = Exporter(
        Receiver(f"{url}/v1/traces", {"Authorization": "Bearer x"}),
        {"service.name": "spillover"},
        **{"linger": 0.0, "first_pause": 0.01, **options},
    )
    running = asyncio.create_task(exporter.run())
    try:
        yield exporter
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def came(what: Callable[[], object]) -> None:
    await until(what, "spans", every=0.005)


async def test_a_receiver_gets_what_opentelemetry_says() -> None:
    attempt = Span(
        trace_of(JobId("a")),
        span_of(JobId("a"), "attempt 1"),
        span_of(JobId("a")),
        "attempt 1",
        NOON,
        NOON + 2 * SECOND,
        {"text": "ä", "whole": 3, "part": 0.5, "yes": True},
        SpanStatus.ERROR,
        "exit code 1",
        (SpanEvent(NOON + SECOND, "stop requested"),),
        ((trace_of(JobId("b")), span_of(JobId("b"))),),
    )
    with receiving() as receiver:
        async with exporting(receiver.url) as exporter:
            exporter.put([attempt, a_span(whole=True)])
            await came(lambda: exporter.counts[DELIVERED])
        one, whole = receiver.spans
        assert receiver.paths == ["/v1/traces"]
        assert receiver.headers[0]["authorization"] == "Bearer x"
        assert receiver.headers[0]["content-type"] == "application/json"
        assert receiver.resource() == {"service.name": "spillover"}
    assert (one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex()) == (
        attempt.trace,
        attempt.span,
        attempt.parent,
    )
    assert (one.start_time_unix_nano, one.end_time_unix_nano) == (NOON, NOON + 2 * SECOND)
    assert attributes(one) == {"text": "ä", "whole": 3, "part": 0.5, "yes": True}
    assert (one.status.code, one.status.message) == (one.status.STATUS_CODE_ERROR, "exit code 1")
    assert [(event.time_unix_nano, event.name) for event in one.events] == [(NOON + SECOND, "stop requested")]
    assert one.links[0].span_id.hex() == span_of(JobId("b"))
    assert (one.kind, whole.kind) == (one.SPAN_KIND_INTERNAL, whole.SPAN_KIND_CONSUMER)
    assert whole.parent_span_id == b""


async def test_many_spans_go_in_batches() -> None:
    with receiving() as receiver:
        async with exporting(receiver.url) as exporter:
            exporter.put([a_span(number) for number in range(2 * BATCH + 1)])
            await came(lambda: exporter.counts[DELIVERED] == 2 * BATCH + 1)
            assert len(receiver.requests) == 3


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
async def test_a_receiver_that_asks_for_time_gets_it_again(status: int) -> None:
    with receiving() as receiver:
        receiver.answers = [(status, {}, b""), (status, {"retry-after": "0.02"}, b"")]
        async with exporting(receiver.url) as exporter:
            exporter.put([a_span()])
            await came(lambda: exporter.counts[DELIVERED])
            assert len(receiver.paths) == 3
            assert exporter.counts == {DELIVERED: 1, DROPPED: 0, REFUSED: 0}


async def test_a_receiver_that_was_away_gets_what_was_kept_for_it() -> None:
    with receiving() as first:
        port = first.port
    async with exporting(f"http://127.0.0.1:{port}") as exporter:
        exporter.put([a_span(1)])
        await asyncio.sleep(0.05)
        with receiving(port) as receiver:
            await came(lambda: receiver.spans)
            exporter.put([a_span(2)])
            await came(lambda: exporter.counts[DELIVERED] == 2)
            assert len(receiver.spans) == 2


async def test_a_receiver_that_is_away_for_long_costs_spans_and_no_memory() -> None:
    with receiving() as first:
        port = first.port
    async with exporting(f"http://127.0.0.1:{port}", most=10) as exporter:
        exporter.put([a_span(number) for number in range(8)])
        exporter.put([a_span(number) for number in range(8, 13)])
        assert exporter.counts[DROPPED] == 3
        await came(lambda: "waiting" in (exporter.problem or ""))
        await came(lambda: (exporter.problem or "").startswith(f"http://127.0.0.1:{port}/v1/traces: "))
        assert (exporter.problem or "").endswith("; 10 spans waiting, 3 lost")
        with receiving(port) as receiver:
            await came(lambda: receiver.spans)
            await came(lambda: exporter.problem is None)
            assert [span.name for span in receiver.spans] == [f"job {number}" for number in range(10)]


async def test_what_a_receiver_refuses_is_not_sent_again() -> None:
    with receiving() as receiver:
        receiver.answers = [
            (401, {}, b"who are you?"),
            (200, {}, b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}'),
        ]
        async with exporting(receiver.url) as exporter:
            exporter.put([a_span(1)])
            await came(lambda: exporter.counts[REFUSED] == 1)
            exporter.put([a_span(2), a_span(3)])
            await came(lambda: exporter.counts[DELIVERED] == 1)
        assert exporter.counts == {DELIVERED: 1, DROPPED: 0, REFUSED: 2}
        assert len(receiver.paths) == 2


async def test_what_is_left_is_delivered_when_the_server_stops() -> None:
    with receiving() as receiver:
        async with exporting(receiver.url, linger=60) as exporter:
            exporter.put([a_span()])
            await asyncio.sleep(0)
        assert len(receiver.spans) == 1


async def test_a_receiver_that_says_nothing_does_not_keep_a_server_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spillover.control.telemetry.exporting.LAST_TRY", 0.1)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with exporting(f"http://127.0.0.1:{silent.getsockname()[1]}") as exporter:
            exporter.put([a_span()])
            await asyncio.sleep(0.05)
            begun = loop.time()
        assert loop.time() - begun < 5
