"""A connection ends when any part of it does; being told to stop at that very moment is not forgotten."""

import asyncio

import pytest

from spillover.agent.connection.link import Over, _until_one_ends


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def ends_at(gate: asyncio.Event) -> None:
    await gate.wait()
    raise Over("the stream ended")


async def test_all_end_with_the_first() -> None:
    gate = asyncio.Event()
    gate.set()
    with pytest.raises(Over, match="the stream ended"):
        await _until_one_ends(for_ever(), ends_at(gate), for_ever())


@pytest.mark.parametrize("turns", range(8))
async def test_whoever_is_cancelled_while_it_ends_is_cancelled(turns: int) -> None:
    gate = asyncio.Event()
    owner = asyncio.create_task(_until_one_ends(for_ever(), ends_at(gate)))
    await asyncio.sleep(0)
    gate.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    heard = owner.cancel()
    await asyncio.wait({owner})
    assert owner.cancelled() if heard else isinstance(owner.exception(), Over)
