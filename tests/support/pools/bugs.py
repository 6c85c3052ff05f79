"""Plants known bugs in what pools do while a story runs, to prove that the checks find them. The product cannot enable them."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.control.pools import comparing, ledger, orders
from spillover.control.pools.comparing import Compared, Comparison
from spillover.control.pools.ledger import PoolCalls, PoolLedger
from spillover.core.decide import DECIDERS
from spillover.core.deciders import machines
from spillover.core.events import AnyEvent, Wish
from spillover.core.pool_proposals import SeeUnwanted
from spillover.core.proposals import Done, Reply
from spillover.core.records.machines import RentedMachine, machine_cost
from spillover.core.snapshot import StateSnapshot
from spillover.core.state import State
from spillover.deciding.renting import money
from spillover.deciding.renting.ordering import Choice
from spillover.deciding.renting.plan import Renting
from spillover.deciding.renting.reusing import Reused, Reusing
from spillover.model.cluster import Billing
from spillover.model.pools import MachineState
from spillover.ports.provider import Listed, Listing
from tests.support.planting import instead
from tests.support.pools.clusters import ClustersStory
from tests.support.pools.jobs import JobsStory
from tests.support.pools.story import Story


@contextlib.contextmanager
def random_token() -> Iterator[None]:
    """Send each order with another token, as the libraries of providers do."""
    tokens = itertools.count()
    with instead(orders, "order_token", lambda *_: f"token-{next(tokens)}"):
        yield


@contextlib.contextmanager
def book_before_listing() -> Iterator[None]:
    """Read the state before a listing, and end what it shows and that state does not want.

    Both checks go: a second listing would show that the machine is wanted.
    """
    due, compare = PoolLedger.due, PoolLedger.compare

    def early(self: PoolLedger, state: State, now: int, monotonic: int) -> PoolCalls:
        calls = due(self, state, now, monotonic)
        if calls.lists:
            self.__dict__["_before"] = StateSnapshot(state)
        return calls

    def late(self: PoolLedger, _: State, listing: Listing, began: int) -> Compared:
        return compare(self, self.__dict__["_before"], listing, began)

    with (
        instead(PoolLedger, "due", early),
        instead(PoolLedger, "compare", late),
        instead(comparing, "APART", 0),
    ):
        yield


@contextlib.contextmanager
def partial_as_whole() -> Iterator[None]:
    """Trust a partial listing as if it were whole."""
    compare = PoolLedger.compare

    def trusting(self: PoolLedger, state: State, listing: Listing, began: int) -> Compared:
        return compare(self, state, replace(listing, whole=True), began)

    with instead(PoolLedger, "compare", trusting):
        yield


@contextlib.contextmanager
def one_listing() -> Iterator[None]:
    """Believe the first listing that does not show a machine, or that shows one which nothing wants."""
    with instead(comparing, "APART", 0):
        yield


@contextlib.contextmanager
def pause_ignored() -> Iterator[None]:
    """Send orders that were wanted before the pool was paused."""
    real = ledger.may_order

    def may_order(state: State, machine: RentedMachine, now: int) -> bool:
        pool = state.pools[machine.cluster]
        wanted = machine.state is MachineState.WANTED and not machine.provider_id
        return real(state, machine, now) or (bool(pool.paused) and wanted)

    with instead(ledger, "may_order", may_order):
        yield


@contextlib.contextmanager
def small_hold() -> Iterator[None]:
    """Hold what a machine costs without whole billing steps and the shortest time that is paid."""
    real = machine_cost

    def by_the_second(offer: Any, _: Billing, time: int) -> int:
        return real(offer, Billing(step=1), time // 4)

    with instead(money, "machine_cost", by_the_second):
        yield


@contextlib.contextmanager
def hold_ends_early() -> Iterator[None]:
    """Do not hold more for machines that stay longer than was thought when they were ordered."""

    def nothing(*_: object) -> None:
        pass

    def never(*_: object) -> bool:
        return False

    with instead(money.PoolMoney, "extend", nothing), instead(money.PoolMoney, "runs_out", never):
        yield


@contextlib.contextmanager
def gang_over_zones() -> Iterator[None]:
    """Order the machines of a gang in several zones."""
    real = Renting._wishes

    def wishes(self: Renting, choice: Choice) -> list[Wish]:
        found = real(self, choice)
        others = [each for each in choice.offer.pool.offers if each.key != choice.offer.offer.key]
        if not choice.gang or not others:
            return found
        return [replace(each, offer=others[0]) if at % 2 else each for at, each in enumerate(found)]

    with instead(Renting, "_wishes", wishes):
        yield


@contextlib.contextmanager
def kept_twice() -> Iterator[None]:
    """Give machines that are kept for one gang to the next one too."""
    real = Reusing._reused

    def forgetting(self: Reusing, *args: Any) -> Reused:
        before = dict(self.kept)
        found = real(self, *args)
        self.kept = before
        return found

    with instead(Reusing, "_reused", forgetting):
        yield


@contextlib.contextmanager
def half_a_gang() -> Iterator[None]:
    """Keep the other machines of a gang of which one was refused."""

    def is_empty(*_: object) -> bool:
        return False

    with instead(machines, "_YOUNG", ()), instead(machines, "_is_empty", is_empty):
        yield


@contextlib.contextmanager
def any_node_dropped() -> Iterator[None]:
    """Let the maker choose which nodes of a whole cluster go."""

    def nobody(*_: object) -> tuple[str, ...]:
        return ()

    with instead(ledger, "dropping", nobody):
        yield


@contextlib.contextmanager
def late_create_stays() -> Iterator[None]:
    """Do not end machines that were made by an order which came late."""

    def found(*_: object) -> tuple[list[AnyEvent], Reply]:
        return [], Done()

    with instead(machines, "found", found), instead(DECIDERS, SeeUnwanted, found):  # type: ignore[arg-type]
        yield


@contextlib.contextmanager
def all_are_ours() -> Iterator[None]:
    """End machines of others who use the same account too."""

    def is_ours(_: Comparison, __: Listed) -> bool:
        return True

    with instead(Comparison, "_is_ours", is_ours):
        yield


class Bug(Struct, frozen=True):
    """A bug, and the stories that find it."""

    plant: Callable[[], contextlib.AbstractContextManager[None]]
    found_by: type[Story]


BUGS: Final = {
    "random-token": Bug(random_token, Story),
    "book-before-listing": Bug(book_before_listing, Story),
    "partial-as-whole": Bug(partial_as_whole, Story),
    "one-listing": Bug(one_listing, Story),
    "pause-ignored": Bug(pause_ignored, Story),
    "late-create-stays": Bug(late_create_stays, Story),
    "all-are-ours": Bug(all_are_ours, Story),
    "small-hold": Bug(small_hold, JobsStory),
    "hold-ends-early": Bug(hold_ends_early, JobsStory),
    "gang-over-zones": Bug(gang_over_zones, JobsStory),
    "kept-twice": Bug(kept_twice, JobsStory),
    "half-a-gang": Bug(half_a_gang, JobsStory),
    "any-node-dropped": Bug(any_node_dropped, ClustersStory),
}
