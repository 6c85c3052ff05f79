"""Carries out what the state wants of the machines of one pool, and reports what the provider says."""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar, cast

import structlog

from spillover.control.live.loop import Loop
from spillover.control.pools.comparing import Compared, Comparison
from spillover.control.pools.knowledge import Size
from spillover.control.pools.ledger import PoolCalls, PoolLedger, may_order
from spillover.control.pools.orders import order_of
from spillover.core.events import (
    AgentLost,
    AnyEvent,
    ClusterSized,
    MachineFound,
    MachineGone,
    MachineMade,
    MachineRefused,
    MachinesEnding,
    MachinesWanted,
    PoolOpened,
    PoolPaused,
    PoolResumed,
)
from spillover.core.pool_proposals import OpenPool, SeeGone, SeePrices, SeeRunning
from spillover.core.proposals import Proposal, Refusal
from spillover.core.records.machines import RentedMachine
from spillover.model.backoff import reason_of
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName
from spillover.model.pools import JoinTerms, MachineId, MachineState, OfferKey
from spillover.model.units import FOREVER, SECOND
from spillover.ports.commands import CommandError
from spillover.ports.kinds import CannotOpen
from spillover.ports.provider import (
    ClusterMaker,
    Created,
    Listing,
    NotNow,
    Provider,
    ProviderError,
    Unknown,
)

log = structlog.get_logger()

T = TypeVar("T")

LINGER: Final = 0.02
"""Least seconds between two passes, so that one pass handles many changes."""
AGAIN: Final = 1.0
"""Seconds until the next pass while this server does not lead, or the store cannot be written."""
LONGEST_CALL: Final = 300.0
"""Seconds after which a call counts as not answered."""
_RUNNING: Final = (MachineState.READY, MachineState.DRAINING)


class MadeClusters(Protocol):
    """Keeps what the server needs to connect to whole clusters that a pool made."""

    def knows(self, form: str) -> bool:
        """Return whether the server can open a cluster with this entry in spill.yaml."""
        ...

    def keep(self, machine: RentedMachine, kubeconfig: str) -> tuple[ClusterSpec, str]:
        """Keep how to connect to a cluster; return the cluster, and its entry in spill.yaml; raise CannotOpen."""
        ...

    def forget(self, machine: MachineId) -> None:
        """Delete what was kept of a cluster that is gone."""
        ...


class PoolControl:
    """Rents the machines of one pool."""

    def __init__(
        self,
        loop: Loop,
        cluster: ClusterName,
        provider: Provider,
        owner: str,
        *,
        terms: Callable[[], JoinTerms | None],
        identity: str,
        made: "MadeClusters | None" = None,
    ) -> None:
        self.cluster = cluster
        self.provider = provider
        self.owner = owner
        self.work = f"pool {cluster}"
        """Name of this work among what is set aside."""
        self._made = made
        """Opens whole clusters that the provider makes; None if it rents machines."""
        self.ledger = PoolLedger(cluster, owner, None if made is None else made.knows)
        self.calls: Counter[tuple[str, str]] = Counter()
        """Calls that were answered, by what was asked and what came of it."""
        self._loop = loop
        self._terms = terms
        """Returns what new machines are told; None while the pool must rest."""
        self._identity = identity
        self._news = asyncio.Event()
        loop.listen(self._see)

    @property
    def failure(self) -> str | None:
        """Return why the provider or this work failed as a whole; None if it did not."""
        aside = next((each.reason for each in self._loop.aside.of(self.work) if not each.subject), None)
        return aside or self.ledger.problem or None

    def retire(self) -> None:
        """Stop following events: the pool is no longer configured."""
        self._loop.unlisten(self._see)
        for each in self._loop.aside.of(self.work):
            self._loop.aside.done(self.work, each.subject)

    async def run(self) -> None:
        """Carry out and observe until cancelled."""
        self.ledger.resume()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._prepare())
            while True:
                pause = await self._look(group)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()
                self._news.clear()
                await asyncio.sleep(LINGER)

    async def _prepare(self) -> None:
        """Let the provider prepare for the first order."""
        try:
            await self._call("prepare", lambda: self.provider.prepare())  # noqa: PLW0108 - within the call
        except ProviderError as error:
            log.warning("cannot prepare for the first machine", pool=self.cluster, error=str(error))

    async def _look(self, group: asyncio.TaskGroup) -> float | None:
        """Propose answers and start the calls that are due; return the seconds until the next look."""
        loop, ledger, terms = self._loop, self.ledger, self._terms()
        if not loop.may_act() or terms is None:
            return AGAIN
        try:
            state = (await loop.read()).state
            pool = state.pools.get(self.cluster)
            if pool is None or not pool.key or pool.terms != terms or not state.facts.identity:
                key = secrets.token_bytes(32)
                await self._propose([OpenPool(self.cluster, key, terms, self._identity)])
                return 0.0
            monotonic = loop.time.monotonic()
            due = ledger.due(state, loop.now(), monotonic)
            if due.proposals:
                await self._propose(due.proposals)
                ledger.told(due.proposals)
                return 0.0  # what is due next depends on them
        except CommandError:
            return AGAIN
        self._begin(group, due, monotonic)
        return None if due.again >= FOREVER else max(0.0, (due.again - monotonic) / SECOND)

    def _begin(self, group: asyncio.TaskGroup, due: PoolCalls, monotonic: int) -> None:
        """Start calls."""
        ledger, state = self.ledger, self._loop.state
        for machine in due.creates:
            ledger.asking(machine.id)
            group.create_task(self._create(machine))
        if due.destroys:
            ledger.destroying_ids(state, due.destroys)
            group.create_task(self._destroy(due.destroys))
        for machine in due.opens:
            ledger.opening(machine.id)
            group.create_task(self._open(machine))
        for machine, size in due.sizes:
            ledger.sizing(machine.id)
            group.create_task(self._resize(machine, size))
        if due.lists:
            ledger.listing_began(monotonic)
            group.create_task(self._list_regularly())
        if due.prices:
            ledger.prices_asked(monotonic)
            group.create_task(self._price())

    async def _propose(self, proposals: Sequence[Proposal]) -> None:
        """Propose what was seen; a proposal that fails is set aside."""
        replies = await self._loop.propose(*proposals)
        for proposal, reply in zip(proposals, replies, strict=True):
            if isinstance(reply, Refusal):
                self._loop.aside.put(
                    self.work, str(getattr(proposal, "machine", "")), RuntimeError(reply.message)
                )

    # --- calls

    async def _create(self, machine: RentedMachine) -> None:
        """Order a machine, if the state still wants it and this server leads."""
        state = self._loop.state
        known = state.machines.get(machine.id)
        if known is None or not may_order(state, known, self._loop.now()) or not self._loop.may_act():
            self.ledger.not_asked(machine.id)
        else:
            answer = await self._answer(lambda: self.provider.create(order_of(state, known, self.owner)))
            self.calls["create", _word(answer)] += 1
            if isinstance(answer, NotNow | Unknown):
                log.warning(
                    "cannot rent a machine now", pool=self.cluster, machine=machine.id, error=answer.why
                )
            self.ledger.answered(machine.id, answer, self._loop.time.monotonic())
        self._news.set()

    async def _answer(self, create: Callable[[], Awaitable[Created]]) -> Created:
        try:
            async with asyncio.timeout(LONGEST_CALL):
                return await create()
        except TimeoutError:
            return Unknown(f"no answer within {LONGEST_CALL:.0f} s")
        except Exception as error:  # noqa: BLE001 - a provider of a package may raise anything
            self._loop.aside.put(self.work, "create", error)
            return Unknown(reason_of(error))

    async def _call(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; raise ProviderError whatever goes wrong."""
        try:
            async with asyncio.timeout(LONGEST_CALL):
                found = await call()
        except TimeoutError:
            self.calls[what, "failed"] += 1
            raise ProviderError(f"no answer within {LONGEST_CALL:.0f} s") from None
        except ProviderError:
            self.calls[what, "failed"] += 1
            raise
        except Exception as error:
            self.calls[what, "failed"] += 1
            self._loop.aside.put(self.work, what, error)
            raise ProviderError(reason_of(error)) from error
        self.calls[what, "answered"] += 1
        self._loop.aside.done(self.work, what)
        return found

    async def _destroy(self, ids: Sequence[str]) -> None:
        """Destroy machines, if this server leads."""
        if not self._loop.may_act():
            self.ledger.not_destroyed(self._loop.state, ids, "", self._loop.time.monotonic())
        else:
            try:
                left = await self._call("destroy", lambda: self.provider.destroy(ids))
            except ProviderError as error:
                log.warning(
                    "cannot end machines; will retry", pool=self.cluster, machines=len(ids), error=str(error)
                )
                self.ledger.not_destroyed(self._loop.state, ids, str(error), self._loop.time.monotonic())
            else:
                for id_, why in left.items():
                    log.warning("cannot end a machine; will retry", pool=self.cluster, id=id_, error=why)
                self.ledger.destroyed(self._loop.state, ids, left, self._loop.time.monotonic())
        self._news.set()

    async def _open(self, machine: RentedMachine) -> None:
        """Learn how to connect to a whole cluster that answers, and add it to the server."""
        maker, made, well = cast("ClusterMaker", self.provider), self._made, False
        try:
            if made is not None and self._loop.may_act():
                text = await self._call("kubeconfig", lambda: maker.kubeconfig(machine.provider_id))
                spec, form = made.keep(machine, text)
                await self._propose([SeeRunning(self.cluster, machine.id, spec, form)])
                well = True
        except (ProviderError, CannotOpen) as error:
            log.warning(
                "cannot connect to a cluster; will retry",
                pool=self.cluster,
                machine=machine.id,
                error=str(error),
            )
        except CommandError:
            pass  # the store cannot be written now
        self.ledger.opened(machine.id, self._loop.time.monotonic(), well=well)
        self._news.set()

    async def _resize(self, machine: RentedMachine, size: Size) -> None:
        """Tell a whole cluster how many nodes it is to have, if this server leads."""
        maker, well = cast("ClusterMaker", self.provider), False
        try:
            if self._loop.may_act():
                await self._call("resize", lambda: maker.resize(machine.provider_id, size.nodes, size.drop))
                well = True
        except ProviderError as error:
            log.warning(
                "cannot resize a cluster; will retry", pool=self.cluster, machine=machine.id, error=str(error)
            )
        self.ledger.sized(machine.id, size, self._loop.time.monotonic(), well=well)
        self._news.set()

    async def _list_regularly(self) -> None:
        """List, and propose what that shows."""
        try:
            listing, began = await self._list()
        except ProviderError as error:
            log.warning("cannot list machines; will retry", pool=self.cluster, error=str(error))
            self.ledger.listing_failed(str(error), self._loop.time.monotonic())
        else:
            self.ledger.listing_ended()
            with contextlib.suppress(CommandError):  # the next listing shows it again
                await self._take(listing, began)
        self._news.set()

    async def _list(self) -> tuple[Listing, int]:
        """Return a listing, and when it began on the monotonic clock; raise ProviderError."""
        loop = self._loop
        began, wall = loop.time.monotonic(), loop.time.wall()
        listing = await self._call("list", self.provider.list)
        # A provider may answer from what it fetched before. A clock that was set only makes the listing count less.
        return listing, began - max(0, wall - listing.began)

    async def _take(self, listing: Listing, began: int) -> None:
        """Compare a listing with the state as it is now, and propose what follows."""
        state = (await self._loop.read()).state
        compared = self.ledger.compare(state, listing, began)
        if not listing.whole:
            log.warning("a listing is not whole", pool=self.cluster, error=listing.why)
        for machine in compared.unlisted:
            log.warning(
                "a machine answers, but the provider does not list it", pool=self.cluster, machine=machine
            )
        if compared.proposals:
            await self._propose(compared.proposals)

    async def _price(self) -> None:
        """Ask for spot prices, and propose them."""
        spec = self._loop.state.clusters.get(self.cluster)
        offers = [] if spec is None or spec.pool is None else [each for each in spec.pool.offers if each.spot]
        try:
            seen = await self._call("prices", lambda: self.provider.prices(offers))
        except ProviderError as error:
            log.warning("cannot get prices; will retry", pool=self.cluster, error=str(error))
            self.ledger.pricing.failed(str(error), self._loop.time.monotonic())
        else:
            self.ledger.pricing.worked()
            prices = {(each.type, each.zone): each.hour for each in seen if each.spot and each.hour > 0}
            known: tuple[tuple[OfferKey, int], ...] = tuple(
                [
                    (each.key, prices[each.type, each.zone])
                    for each in offers
                    if (each.type, each.zone) in prices
                ]
            )
            if known:
                with contextlib.suppress(CommandError):
                    await self._propose([SeePrices(self.cluster, known)])
        self._news.set()

    async def end_all(self, why: str) -> None:
        """End all machines at once, and record that they are gone; not while this also runs."""
        try:
            listing = await self._call("list", self.provider.list)
            state = (await self._loop.read()).state
            ours = {each.id for each in listing.machines if each.owner == self.owner}
            ours.update(each.provider_id for each in state.live_machines(self.cluster) if each.provider_id)
            if not ours or not self._loop.may_act():
                return
            left = await self._call("destroy", lambda: self.provider.destroy(sorted(ours)))
            ended = ours.difference(left)
            gone = [each for each in state.live_machines(self.cluster) if each.provider_id in ended]
            await self._propose([SeeGone(self.cluster, each.id, why) for each in gone])
        except (ProviderError, CommandError) as error:
            log.warning("cannot end all machines of a pool", pool=self.cluster, error=str(error))

    # --- questions

    async def sweep(self) -> Compared:
        """Return what a listing shows that the state does not want or know, and change nothing; raise ProviderError."""
        listing, began = await self._list()
        state = (await self._loop.read()).state
        ledger = self.ledger
        return Comparison(state, self.cluster, self.owner, ledger.known_of, dict(ledger.unwanted)).run(
            listing, began
        )

    def list_now(self) -> None:
        """List at once rather than when the next listing is due, and end what that confirms."""
        self.ledger.sweep()
        self._news.set()

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Take in durable events."""
        for event in events:
            match event:
                case PoolPaused() if event.cluster == self.cluster:
                    log.error(
                        "a pool is paused: it rents nothing until somebody runs `spill pools resume`",
                        pool=self.cluster,
                        by=event.who,
                        why=event.why,
                    )
                case MachineGone() | MachineRefused() if event.cluster == self.cluster:
                    if self._made is not None:
                        self._made.forget(event.machine)
                    self._news.set()
                case AgentLost() if event.cluster == self.cluster and self._runs(MachineId(event.node)):
                    self.ledger.doubt()
                    self._news.set()
                case MachinesWanted() if event.cluster == self.cluster:
                    self.ledger.wanted([each.machine for each in event.wishes])
                    self._news.set()
                case (
                    MachinesEnding()
                    | MachineMade()
                    | MachineFound()
                    | ClusterSized()
                    | PoolOpened()
                    | PoolResumed()
                ) if event.cluster == self.cluster:
                    self._news.set()
                case _:
                    pass

    def _runs(self, machine: MachineId) -> bool:
        """Return whether a machine should run."""
        known = self._loop.state.machines.get(machine)
        return known is not None and known.cluster == self.cluster and known.state in _RUNNING


def _word(answer: Created) -> str:
    """Return what came of an order, as a label of a metric."""
    words = {"Made": "made", "Refused": "refused", "NotNow": "not now", "Unknown": "unknown"}
    return words[type(answer).__name__]
