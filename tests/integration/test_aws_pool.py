"""The controller of a pool with the provider aws, on the clock of the machine, while EC2 loses and refuses requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spillover.control.controllers.pools import PoolControl
from spillover.control.live.clock import SystemClock
from spillover.control.live.loop import Loop
from spillover.core.events import AnyEvent, MachinesEnding, MachinesWanted, Wish
from spillover.core.proposals import StartEpoch
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import JoinTerms, MachineState, Offer, Pool, machine_id
from spillover.model.resources import Resources
from spillover.model.units import MINUTE
from spillover.policies.loading import load
from spillover.providers.aws.calls import Limits
from spillover.providers.aws.options import AwsForm
from spillover.providers.aws.provider import AwsProvider
from spillover.stores.memory import open_memory
from spillover.testing.provider_suite import OTHER, OWNER, an_opening
from spillover.wire.journal import encode_event
from tests.support.clouds.ec2 import KEYS, REGION, ZONES, Ec2Server, ec2_server
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CLOUD = ClusterName("cloud")
OFFER = Offer("m5.large", Resources(2000, 7 * 2**30), 115_000, ZONES[0])
SPEC = ClusterSpec(CLOUD, "agents", Role.RENTED, Price(), Billing(), pool=Pool("aws", (OFFER,), max=9))
MACHINES = [machine_id("cloud", number) for number in range(1, 6)]


def write(loop: Loop, event: AnyEvent) -> None:
    """Let the plan decide something, as durably as it does."""
    loop.engine.apply(event)
    loop._pending.append(event)
    loop._encoded.append(encode_event(event))
    loop.applied += 1
    loop._writing.set()


@asynccontextmanager
async def renting(ec2: Ec2Server, folder: Path, owner: str = OWNER) -> AsyncIterator[Loop]:
    """A loop that leads, and the controller of its pool."""
    store = open_memory()
    loop = Loop(store.journal, load, SystemClock(), debug=True)
    epoch = await store.election.campaign("test", "http://test")
    assert isinstance(epoch, int)
    loop.begin(epoch, await loop.load())
    stepping = asyncio.create_task(loop.run())
    await loop.propose(StartEpoch(epoch, (SPEC,), PolicySet(wait=Choice("zero"))))
    form = AwsForm(region=REGION, image=ec2.image(), endpoint=ec2.url)
    provider = AwsProvider(form, an_opening(folder, owner, KEYS), Limits(read=2.0))
    control = PoolControl(
        loop, CLOUD, provider, owner, terms=lambda: JoinTerms("10.0.0.1:7071"), identity="me"
    )
    running = asyncio.create_task(control.run())
    await until(lambda: CLOUD in loop.state.pools, "the pool being open")
    try:
        yield loop
    finally:
        for task in (running, stepping):
            task.cancel()
        await asyncio.gather(running, stepping, return_exceptions=True)


async def test_each_wish_is_one_machine_and_none_is_left_whatever_ec2_does(tmp_path: Path) -> None:
    with ec2_server() as ec2:
        ec2.reset()
        async with renting(ec2, tmp_path) as loop, renting(ec2, tmp_path, OTHER) as other:
            ec2.lose("RunInstances", 2, arrives=True)
            ec2.lose("RunInstances", 1, arrives=False)
            ec2.fail("RunInstances", "RequestLimitExceeded", 503, times=1)
            ec2.fail("DescribeInstances", "InternalError", 500, times=2)
            ec2.lagging = True  # so that only the token finds machines whose answers were lost
            for each in (loop, other):
                wishes = tuple(Wish(machine, OFFER, each.now() + 10 * MINUTE) for machine in MACHINES)
                write(each, MachinesWanted(CLOUD, each.now(), wishes))

            def states(loop: Loop) -> set[MachineState]:
                return {each.state for each in loop.state.machines.values()}

            await until(
                lambda: states(loop) == states(other) == {MachineState.BOOTING}, "machines being made", 60
            )
            ec2.lagging = False
            assert len(ec2.machines) == 2 * len(MACHINES)
            theirs = {each.provider_id for each in other.state.machines.values()}
            ec2.fail("TerminateInstances", "InternalError", 500, times=1)
            write(loop, MachinesEnding(CLOUD, loop.now(), tuple(MACHINES), "enough"))
            await until(lambda: states(loop) == {MachineState.GONE}, "machines being gone", 60)
            assert {each.id for each in ec2.machines} == theirs
