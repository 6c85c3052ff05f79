"""Plays a pool whose servers die and whose provider fails, and checks what must hold for its machines."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.control.live.clock import SteadyTime
from spillover.control.pools.comparing import Seen
from spillover.control.pools.ledger import PoolCalls, PoolLedger
from spillover.control.pools.orders import order_of
from spillover.core.events import AnyEvent, Lease, MachinesEnding, MachinesWanted, Wish
from spillover.core.pool_proposals import (
    OpenPool,
    PausePool,
    ResumePool,
    SeeGone,
    SeeRefused,
    SeeUnwanted,
)
from spillover.core.proposals import AgentGone, Jump, Proposal, Register, Registered, Reply, StartEpoch
from spillover.core.records.machines import LIVE, RentedMachine
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.protocols import Policies
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import JoinTerms, MachineId, MachineState, Offer, Pool, machine_id
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.ports.provider import (
    Created,
    Join,
    Listing,
    NotNow,
    Order,
    Unknown,
    machine_name,
    order_token,
)
from spillover.testing.world import START
from tests.support.pools.account import Account, Machine

CLOUD: Final = ClusterName("cloud")
SMALL: Final = Offer("small", Resources(4000, 2**33), 1_000_000, "a")
SPEC: Final = ClusterSpec(
    CLOUD,
    "agents",
    Role.RENTED,
    Price(),
    Billing(step=SECOND),
    gangs=True,
    pool=Pool("story", (SMALL, replace(SMALL, zone="b")), max=50, join_within=3 * MINUTE, idle=MINUTE),
)
OWNER: Final = "0123456789abcdef"
OTHER: Final = "fedcba9876543210"
TERMS: Final = JoinTerms("10.0.0.1:7071")
TICK: Final = SECOND
TROUBLED: Final = 8 * MINUTE
"""How long faults occur."""
CALM: Final = 6 * MINUTE
"""After that, only what is wanted exists."""
END: Final = 10 * MINUTE
"""After this time without any wish, nothing exists."""
MOST_LATE: Final = 120
"""Seconds after which a request may still arrive, also of a server that is dead."""
LOST_AFTER: Final = 20 * SECOND


class ServerClock:
    """The clocks of the server's machine. Somebody may set the wall clock."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.ahead = 0
        """How far the wall clock is ahead of that of the provider, which is right."""

    def wall(self) -> int:
        return self._now() + self.ahead

    def monotonic(self) -> int:
        return self._now() - START


class Wrong(AssertionError):
    """Something happened that must not happen."""


class Told(Struct):
    """What a story met."""

    made: int = 0
    crashes: int = 0
    late: int = 0
    """Machines that were made by the order of a server that was dead."""
    found: int = 0
    """Machines that were found although nothing wanted them."""
    refused: int = 0
    paused: int = 0
    joined: int = 0
    gone: int = 0
    jumps: int = 0
    """Jumps of the server's clock that it followed."""
    jobs: int = 0
    """Jobs that ended."""
    interrupted: int = 0
    """Attempts that were lost with their machine or stopped for its end."""
    calls: int = 0
    """Requests that servers sent."""
    earmarked: int = 0
    """How often machines that were there were kept for a gang."""


class Story:
    """Plays the story of a seed."""

    spec = SPEC
    calm = CALM
    end = END
    slow_listings = 0.1
    """How often listings take long: machines are made after they were asked for, and before they are shown."""

    def __init__(self, seed: int, load: Callable[[PolicySet], Policies]) -> None:
        self._seed = seed
        self._dice = Random(seed)
        self._slow = Random(f"slow {seed}")
        self._now = START
        self.clock = ServerClock(lambda: self._now)
        self._time = SteadyTime(self.clock)
        self._engine = Engine(State(), load, now=self._now, debug=True)
        self.account = Account(self._dice)
        self.told = Told()
        self._epoch = 0
        self._away = 0
        """Time until which no server runs."""
        self._ledger: PoolLedger | None = None
        self._listed: Listing | None = None
        """The last whole listing that this server got."""
        self._messages: list[tuple[int, Callable[[], None]]] = []
        """What is under way, and when it arrives."""
        self._joins: dict[str, int] = {}
        """When the agents of machines join, by the provider's id; those that never do are missing."""
        self._events: Counter[str] = Counter()
        self._incarnations = 0
        self._agents: dict[str, tuple[NodeName, int]] = {}
        """The name and incarnation of the agent on each machine."""

    def play(self) -> Told:
        """Play the story to its end; raise Wrong."""
        self._theirs()
        end = START + TROUBLED + self.calm + self.end
        while self._now < end:
            self._now += TICK
            troubled = self._now < START + TROUBLED
            if troubled:
                self._interfere()
            else:
                self.account.troubled = self.account.down = False
            self._arrive()
            self._boot()
            if self._now >= self._away:
                if self._ledger is None:
                    self._begin()
                self._plan(troubled=troubled)
                self._serve()
            self._check()
            if self._now == START + TROUBLED + self.calm:
                self._check_wanted()
                self._end_all()
        if self.account.running(OWNER) or self._live():
            raise Wrong(f"seed {self._seed}: left: {self.account.running(OWNER)}, {self._live()}")
        self._tell()
        return self.told

    # --- the server

    @property
    def _clock(self) -> int:
        """The time of the server."""
        return self._time.now()

    def _step(self, *proposals: Proposal) -> list[Reply]:
        """Let the server decide something, as its loop does."""
        now = self._clock
        if jumped := self._time.take_jump():
            self.told.jumps += 1
            self._run(self._engine.now, [Jump(jumped)])
        return self._run(now, proposals)

    def _run(self, now: int, proposals: Sequence[Proposal]) -> list[Reply]:
        step = self._engine.step(now, proposals)
        if step.failures:
            raise Wrong(f"seed {self._seed}: {step.failures}")
        self._count(step.events)
        return list(step.replies)

    def _count(self, events: list[AnyEvent]) -> None:
        self._events.update([type(each).__name__ for each in events])
        if self._ledger is not None:
            for each in events:
                if isinstance(each, MachinesWanted):
                    self._ledger.wanted([wish.machine for wish in each.wishes])

    def _begin(self) -> None:
        """Let a server take the lead."""
        self._epoch += 1
        self._time = SteadyTime(self.clock, self._engine.now)
        self._step(StartEpoch(self._epoch, (self.spec,), PolicySet(wait=Choice("zero"))))
        self._step(OpenPool(CLOUD, b"key", TERMS, "identity"))
        self._ledger, self._listed = PoolLedger(CLOUD, OWNER), None
        for id_ in self._agents:  # they find the new server
            self._joins[id_] = self._now + self._dice.randint(1, 10) * SECOND

    def _serve(self) -> None:
        """Let the server do what is due."""
        ledger = self._ledger
        assert ledger is not None
        monotonic = self._now - START
        if self._engine.next_time() <= self._clock:
            self._step()
        due = ledger.due(self._engine.state, self._clock, monotonic)
        if due.proposals:
            self._step(*due.proposals)
            ledger.told(due.proposals)
            return
        state = self._engine.state
        for machine in due.creates:
            if state.pools[CLOUD].paused or state.machines[machine.id].state is not MachineState.WANTED:
                raise Wrong(f"seed {self._seed}: an order for {machine}")
            self.told.calls += 1
            ledger.asking(machine.id)
            self._send_order(machine)
        if due.destroys:
            self._check_destroys(due.destroys)
            self.told.calls += 1
            ledger.destroying_ids(state, due.destroys)
            self._send_destroy(list(due.destroys))
        if due.lists:
            self.told.calls += 1
            ledger.listing_began(monotonic)
            self._send_list(monotonic)
        self._connect(due)

    def _connect(self, due: PoolCalls) -> None:
        """Connect to what is there; a machine does that itself."""

    def _send_order(self, machine: RentedMachine) -> None:
        order, ledger = order_of(self._engine.state, machine, OWNER), self._ledger
        heard = False

        def reply(answer: Created) -> None:
            nonlocal heard
            if ledger is self._ledger and ledger is not None and not heard:
                heard = True
                ledger.answered(machine.id, answer, self._now - START)

        def arrive() -> None:
            if self.account.down:
                down: list[Created] = [NotNow("no connection"), Unknown("no answer")]
                self._later(reply, self._dice.choice(down))
                return
            before = len(self.account.machines)
            answer = self.account.create(order, self._now)
            if len(self.account.machines) > before:
                self.told.late += ledger is not self._ledger
                self._will_join(f"i-{before + 1}")
            if self._fails(0.05):
                self._messages.append((self._now + self._delay(), arrive))  # the network sends it twice
            if not self._fails(0.15):  # else the answer is lost
                self._later(reply, answer)

        if not self._fails(0.1):  # else the request is lost
            self._messages.append((self._now + self._delay(late=self._fails(0.1)), arrive))
        self._messages.append((self._now + 10 * SECOND, lambda: reply(Unknown("no answer in time"))))

    def _send_destroy(self, ids: list[str]) -> None:
        ledger = self._ledger

        def arrive() -> None:
            left = self.account.destroy(ids, self._now)
            if ledger is not self._ledger or ledger is None:
                return
            if left is None or self._fails(0.1):
                ledger.not_destroyed(self._engine.state, ids, "no answer", self._now - START)
            else:
                ledger.destroyed(self._engine.state, ids, left, self._now - START)

        self._messages.append((self._now + self._delay(), arrive))

    def _send_list(self, began: int) -> None:
        ledger = self._ledger

        def arrive() -> None:
            listing = self.account.list(OWNER, self._now)
            self._messages.append((self._now + self._delay(), lambda: reply(listing)))

        def reply(listing: Listing | None) -> None:
            if ledger is not self._ledger or ledger is None:
                return
            if listing is None:
                ledger.listing_failed("no answer", self._now - START)
                return
            ledger.listing_ended()
            found = ledger.compare(self._engine.state, listing, began)
            self._check_listing(listing, found.proposals)
            if found.proposals:
                self._step(*found.proposals)

        slow = self.account.troubled and self._slow.random() < self.slow_listings
        later = self._slow.randint(5, 30) * SECOND if slow else 0
        self._messages.append((self._now + later + self._delay(), arrive))

    def _later(self, reply: Callable[[Created], None], answer: Created) -> None:
        self._messages.append((self._now + self._delay(), lambda: reply(answer)))

    def _delay(self, *, late: bool = False) -> int:
        return self._dice.randint(5, MOST_LATE) * SECOND if late else self._dice.randint(0, 3) * SECOND

    def _fails(self, part: float) -> bool:
        return self.account.troubled and self._dice.random() < part

    def _arrive(self) -> None:
        due = [each for each in self._messages if each[0] <= self._now]
        self._messages = [each for each in self._messages if each[0] > self._now]
        for _, happen in due:
            happen()

    # --- the world

    def _theirs(self) -> None:
        """Let another server use the same account, with machines of the same names."""
        for number in range(1, 4):
            machine = MachineId(f"cloud-{number}")
            join = Join("10.0.0.9:7071", CLOUD, machine, "secret", START + MINUTE)
            order = Order(machine, order_token(OTHER, machine), OTHER, SMALL, join)
            self.account.machines[f"i-{number}"] = Machine(f"i-{number}", order, START)

    def _interfere(self) -> None:
        if self._dice.random() < 0.02:
            known = [each.provider_id for each in self._live() if each.provider_id]
            self.account.interfere(OWNER, self._now, known)
        if self._dice.random() < 0.01:
            self.account.down = not self.account.down
        if self._dice.random() < 0.01:
            self.account.quota = self._dice.choice([2, 5, 1000])
        if self._ledger is not None and self._dice.random() < 0.01:
            self.told.crashes += 1
            self._ledger = None
            self._away = self._now + self._dice.randint(1, 40) * SECOND

    def _will_join(self, id_: str) -> None:
        if not self._fails(0.2):
            self._joins[id_] = self._now + self._dice.randint(5, 60) * SECOND

    def _boot(self) -> None:
        """Let agents join whose machines are up, and be lost whose machines are not."""
        if self._ledger is None:
            return
        for id_, at in list(self._joins.items()):
            machine = self.account.machines[id_]
            if machine.ended is not None:
                del self._joins[id_]
            elif at <= self._now:
                del self._joins[id_]
                self._incarnations += 1
                joins, capacity = NodeName(machine.order.machine), machine.order.offer.resources
                self._agents[id_] = joins, self._incarnations
                held = self._held_by(id_)
                (reply,) = self._step(Register(CLOUD, joins, self._incarnations, capacity, (), {}, 0, held))
                if isinstance(reply, Registered):
                    self._keep(id_, reply.keep)
        for id_, (name, incarnation) in list(self._agents.items()):
            ended = self.account.machines[id_].ended
            if ended is not None and self._now > ended + LOST_AFTER:
                del self._agents[id_]
                self._step(AgentGone(CLOUD, name, incarnation))

    def _held_by(self, id_: str) -> tuple[Lease, ...]:
        """Return the leases that the agent of a machine reports when it registers."""
        del id_
        return ()

    def _keep(self, id_: str, keep: tuple[Lease, ...]) -> None:
        """Let the agent of a machine stop all tasks but these."""

    # --- what is wanted

    def _plan(self, *, troubled: bool) -> None:
        """Want and end machines, and pause and resume the pool."""
        state, dice = self._engine.state, self._dice
        young = (MachineState.WANTED, MachineState.BOOTING)
        late = [each.id for each in self._live() if each.state in young and each.join_by <= self._now]
        if late:
            self._apply(MachinesEnding(CLOUD, self._now, tuple(late), "it did not join", len(late)))
        if not troubled:
            if state.pools[CLOUD].paused:
                self._step(ResumePool(CLOUD, "ada"))
            return
        if dice.random() < 0.05 and not state.pools[CLOUD].paused and len(self._live()) < 30:
            first, many = state.facts.machines + 1, dice.randint(1, 4)
            group = f"gang-{first}" if dice.random() < 0.3 else ""
            wishes = [
                Wish(machine_id("cloud", first + each), SMALL, self._now + 3 * MINUTE, group=group)
                for each in range(many)
            ]
            self._apply(MachinesWanted(CLOUD, self._now, tuple(wishes)))
        live = [each for each in self._live() if each.state is not MachineState.ENDING]
        if live and dice.random() < 0.03:
            each = dice.choice(live)
            self._apply(MachinesEnding(CLOUD, self._now, (each.id,), "enough"))
        if dice.random() < 0.005:
            self._step(PausePool(CLOUD, "ada", end=dice.random() < 0.3))
        if state.pools[CLOUD].paused and dice.random() < 0.03:
            self._step(ResumePool(CLOUD, "ada"))

    def _apply(self, event: AnyEvent) -> None:
        self._engine.apply(event)
        self._count([event])

    def _end_all(self) -> None:
        """Want nothing any more."""
        self._step(PausePool(CLOUD, "ada", end=True))
        self._step(ResumePool(CLOUD, "ada"))

    # --- what must hold

    def _live(self) -> list[RentedMachine]:
        return [each for each in self._engine.state.machines.values() if each.state in LIVE]

    def _check(self) -> None:
        """At most one machine runs for each wish, and those of others are left alone."""
        if any(each.ended is not None and not each.interrupted for each in self._others()):
            raise Wrong(f"seed {self._seed}: a machine of another server was ended")
        wishes = Counter([each.order.machine for each in self.account.running(OWNER)])
        if many := [each for each, count in wishes.items() if count > 1]:
            raise Wrong(f"seed {self._seed}: several machines for {many}")

    def _check_destroys(self, ids: Sequence[str]) -> None:
        """Nothing is destroyed that is wanted."""
        wanted = [each for each in self._live() if each.state is not MachineState.ENDING]
        for id_ in ids:
            there = self.account.machines[id_]
            if there.ended is None and any(
                id_ == each.provider_id or there.order.machine == each.id for each in wanted
            ):
                raise Wrong(f"seed {self._seed}: {there} is wanted, and is destroyed")

    def _check_listing(self, listing: Listing, proposals: Sequence[Seen]) -> None:
        """What a listing does not show is gone, and what nothing wants is ended, only if two whole ones in a row agree."""
        before = self._listed
        for each in proposals:
            match each:
                case SeeUnwanted():
                    proven = listing.whole and before is not None and _shows(before, each.provider_id)
                case SeeGone() | SeeRefused():
                    machine = self._engine.state.machines[each.machine]
                    id_ = machine.provider_id or machine.id
                    twice = machine.state is MachineState.ENDING or (
                        before is not None and not _shows(before, id_, machine.id)
                    )
                    proven = _shows(listing, id_, machine.id) or (listing.whole and twice)
                case _:
                    proven = True
            if not proven:
                raise Wrong(f"seed {self._seed}: {each} follows from {before} and {listing}")
        if listing.whole:
            self._listed = listing

    def _others(self) -> list[Machine]:
        return [each for each in self.account.machines.values() if each.order.owner == OTHER]

    def _check_wanted(self) -> None:
        """Everything that exists is wanted, and everything that was made exists."""
        book = {each.provider_id: each for each in self._live() if each.provider_id}
        running = {each.id: each for each in self.account.running(OWNER)}
        if strays := [each for id_, each in running.items() if id_ not in book]:
            raise Wrong(f"seed {self._seed}: nothing wants {strays}")
        if ghosts := [each for id_, each in book.items() if id_ not in running]:
            raise Wrong(f"seed {self._seed}: not there: {ghosts}")
        if open_ := [
            each for each in self._live() if each.state in {MachineState.WANTED, MachineState.ENDING}
        ]:
            raise Wrong(f"seed {self._seed}: not settled: {open_}")

    def _tell(self) -> None:
        count = self._events
        self.told.made = len(self.account.machines)
        self.told.found, self.told.refused = count["MachineFound"], count["MachineRefused"]
        self.told.paused, self.told.joined = count["PoolPaused"], count["MachineJoined"]
        self.told.gone = count["MachineGone"]


def _shows(listing: Listing, id_: str, machine: str = "") -> bool:
    """Return whether a listing shows a machine, by the provider's id, its tag or its name."""
    name = machine_name(OWNER, MachineId(machine))
    return any(
        each.id == id_
        or (machine and each.owner in {OWNER, ""} and (each.machine == machine or each.name == name))
        for each in listing.machines
    )
