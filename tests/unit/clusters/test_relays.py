"""Live connections: bounded, backwards and forwards, and ended by either side."""

import asyncio

import pytest

from spillover.clusters.agents import relays as module
from spillover.clusters.agents.relays import PIECES, Pipe, Relays
from spillover.ports.cluster import RelayGone
from spillover.wire.relay import FrameKind, FrameReader
from tests.support.waiting import turn

NODE = "onprem/n1"


def _nobody(_: str) -> None:
    """Ask nobody."""


async def test_a_pipe_holds_a_few_pieces_and_then_waits() -> None:
    pipe = Pipe()
    for number in range(PIECES):
        assert await pipe.put(b"%d" % number)
    waiting = asyncio.create_task(pipe.put(b"more"))
    await turn()
    assert not waiting.done()
    assert await pipe.get() == b"0"
    assert await waiting
    await pipe.close(b"last")
    assert not await pipe.put(b"too late")
    assert [await pipe.get() for _ in range(PIECES + 2)] == [b"1", b"2", b"3", b"more", b"last", None]


async def test_a_client_that_is_gone_frees_who_waits_for_it() -> None:
    relays, asked, left = Relays(), list[str](), list[str]()
    relay = relays.open(NODE, asked.append, left.append)
    assert relays.find(asked[0], "onprem/n2") is None, "of another agent"
    assert relays.find(asked[0], NODE) is relay
    assert relay.join()
    assert not relay.join(), "an agent joins once"
    await relay.joined()
    for _ in range(PIECES):
        await relay.heard(b"x")
    waiting = asyncio.create_task(relay.heard(b"x"))
    await turn()
    await relay.close()
    assert await waiting is False
    assert left == asked, "the agent may be unable to read its call to the end"
    assert await relay.next() is None
    assert relays.find(asked[0], NODE) is None


async def test_an_agent_that_is_gone_is_told_behind_what_it_sent() -> None:
    left: list[str] = []
    relay = Relays().open(NODE, _nobody, left.append)
    await relay.heard(b"before")
    await relay.ended()
    assert await relay.receive() == b"before"
    piece = await relay.receive()
    assert piece is not None
    (frame,) = FrameReader().feed(piece)
    assert (frame.kind, frame.text) == (FrameKind.ERROR, "the connection to agent n1 was lost")
    assert await relay.receive() is None
    assert await relay.send(b"x") is False
    await relay.close()
    assert not left, "there is nobody to tell"


async def test_an_agent_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER", 0.01)
    with pytest.raises(RelayGone, match="did not answer"):
        await Relays().open(NODE, _nobody, _nobody).joined()


def test_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 1)
    relays = Relays()
    relays.open(NODE, _nobody, _nobody)
    with pytest.raises(RelayGone, match="the maximum"):
        relays.open(NODE, _nobody, _nobody)
