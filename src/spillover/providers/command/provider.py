"""The provider `command`: rents machines through three programs of the operator, for any cloud that has a command line.

Each program gets a JSON document on standard input and writes one to standard output. The exit code of `create` says
whether the machine exists; docs/pools.md has the forms. What makes an order safe to repeat is up to the program: it
gets the token and a name that is unique to the order.

With two more programs, `kubeconfig` and `resize`, what the programs make are whole clusters.
"""

import asyncio
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta, Struct, field

from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import duration
from spillover.model.bounds import plain
from spillover.model.pools import Offer, RefusalCause
from spillover.model.units import DAY, SECOND, UnitError, parse_time
from spillover.ports.kinds import Flaw
from spillover.ports.provider import (
    MACHINE_TAG,
    OWNER_TAG,
    ClusterMaker,
    Created,
    Listed,
    Listing,
    Made,
    NotNow,
    Order,
    Presence,
    PriceSeen,
    Provider,
    ProviderError,
    ProviderKind,
    ProviderOpening,
    Refused,
    Unknown,
    name_prefix,
)
from spillover.providers.command.programs import MOST_OUTPUT, Ended, NotStarted, Programs
from spillover.providers.userdata import offer_options, user_data
from spillover.wire.jobfile import Quantity

VERSION: Final = 1
"""Of the documents that programs get."""
REFUSALS: Final = {
    10: RefusalCause.CAPACITY,
    11: RefusalCause.QUOTA,
    12: RefusalCause.INVALID,
    13: RefusalCause.AUTH,
}
"""Exit codes of `create` that say that the machine does not exist, and will not under this order."""
NOT_NOW: Final = 75
"""Exit code of `create` that says that the machine does not exist, and that the order may be repeated."""
PROGRAMS: Final = ("create", "list", "destroy")
MAKING: Final = ("kubeconfig", "resize")
"""Programs that only makers of whole clusters have."""
_Words = str | list[str]


class CommandForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the provider `command`."""

    create: Annotated[_Words, Meta(description="Program that creates a machine, with its arguments.")] = ""
    list: Annotated[_Words, Meta(description="Program that lists machines, with its arguments.")] = ""
    destroy: Annotated[_Words, Meta(description="Program that destroys machines, with its arguments.")] = ""
    env: Annotated[
        dict[str, str],
        Meta(max_length=100, description="Variables for the programs, beside the environment of the server."),
    ] = field(default_factory=dict)
    timeout: Annotated[Quantity, Meta(description="A program that takes longer is ended.")] = "5m"
    at_once: Annotated[
        int, Meta(ge=1, le=1000, description="The most machines that are created at a time.")
    ] = 8
    program: Annotated[
        str, Meta(min_length=1, description="The program `spill` on the machines, in `user_data`.")
    ] = "spill"
    kubeconfig: Annotated[
        _Words, Meta(description="Program that writes the kubeconfig of a whole cluster.")
    ] = ""
    resize: Annotated[_Words, Meta(description="Program that sets how many nodes a cluster has.")] = ""


class CommandKind(ProviderKind):
    """The provider `command`."""

    name: ClassVar[str] = "command"
    form: ClassVar[type[Struct]] = CommandForm

    def makes_clusters(self, form: CommandForm) -> bool:
        """See ProviderKind. The two programs that only clusters need tell."""
        return any(getattr(form, name) for name in MAKING)

    def check(self, form: CommandForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return programs that are not given, and a timeout that is none."""
        del offers
        found = Findings()
        for name in self._programs(form):
            try:
                if not _words(getattr(form, name)):
                    why = " (whole clusters need both kubeconfig and resize)" if name in MAKING else ""
                    found.add(
                        (name,),
                        f"is missing; write the program that does this: {name}: /path/to/program{why}",
                    )
            except ValueError as error:
                found.add((name,), f"{shown(getattr(form, name))} is not a command: {error}")
        _timeout(form, found)
        return [Flaw(path, message) for path, message in found.found]

    def missing(self, form: CommandForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return programs that are not on this machine."""
        del home
        path = {**environ, **form.env}.get("PATH")
        programs = dict.fromkeys(_words(getattr(form, name))[0] for name in self._programs(form))
        return [
            f"the provider command cannot run {each}; install it, or make it executable"
            for each in programs
            if shutil.which(each, path=path) is None
        ]

    def open(self, form: CommandForm, opening: ProviderOpening) -> "CommandProvider":
        """See ProviderKind."""
        return (CommandMaker if self.makes_clusters(form) else CommandProvider)(form, opening)

    def _programs(self, form: CommandForm) -> Sequence[str]:
        """Return the options that name a program which is needed."""
        return (*PROGRAMS, *MAKING) if self.makes_clusters(form) else PROGRAMS


class _Made(Struct):
    """What `create` writes."""

    id: str
    at: str = ""


class _Machine(Struct):
    """A machine as `list` writes it."""

    id: str
    state: Presence
    name: str = ""
    tags: dict[str, str] = {}
    at: str = ""
    reason: str = ""
    interrupted: bool = False
    nodes: Annotated[int, Meta(ge=0)] | None = None


class _Listing(Struct):
    """What `list` writes."""

    machines: list[_Machine]
    whole: bool = True
    why: str = ""


class _Destroyed(Struct):
    """What `destroy` writes, if it writes anything."""

    failed: dict[str, str] = {}


class CommandProvider(Provider):
    """Rents machines through programs."""

    def __init__(self, form: CommandForm, opening: ProviderOpening) -> None:
        self._form = form
        self._opening = opening
        environ = {**opening.environ, **form.env}
        self._programs = Programs(opening.data / "logs", environ, _timeout(form, Findings()))
        self._programs.clean()
        self._creating = asyncio.Semaphore(form.at_once)

    async def create(self, order: Order) -> Created:
        """See Provider."""
        async with self._creating:
            try:
                ended = await self._programs.run(
                    _words(self._form.create), self._asked(order), f"create-{order.name}"
                )
            except NotStarted as error:
                return NotNow(str(error))
        if ended.code in REFUSALS:
            return Refused(REFUSALS[ended.code], ended.why)
        if ended.code == NOT_NOW:
            return NotNow(ended.why)
        if ended.code != 0:
            return Unknown(ended.why)
        made, wrong = _decoded(ended, _Made)
        if made is None or not made.id:
            return Unknown(f"create wrote no answer that can be read: {wrong or 'the id is empty'}")
        return Made(made.id, _at(made.at))

    async def list(self) -> Listing:
        """See Provider."""
        began = time.time_ns()
        said = await self._answer(self._form.list, self._who(), "list")
        listing, wrong = _decoded(said, _Listing)
        if listing is None:
            raise ProviderError(f"list wrote no answer that can be read: {wrong}")
        ours = [_listed(each) for each in listing.machines if self._is_ours(each)]
        why = "" if listing.whole else plain(listing.why).strip() or "list said that it is not whole"
        return Listing(began, listing.whole, tuple(ours), why)

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider."""
        if not ids:
            return {}
        said = await self._answer(self._form.destroy, {**self._who(), "ids": [*ids]}, "destroy")
        if not said.answer.strip():
            return {}
        destroyed, wrong = _decoded(said, _Destroyed)
        if destroyed is None:
            raise ProviderError(f"destroy wrote no answer that can be read: {wrong}")
        return {id_: plain(why).strip() or "no reason" for id_, why in destroyed.failed.items() if id_ in ids}

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider. Lists machines, to see whether that works."""
        del offers
        try:
            listing = await self.list()
        except ProviderError as error:
            return [str(error)]
        return () if listing.whole else [listing.why]

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. No program states prices."""
        del offers
        return ()

    async def close(self) -> None:
        """See Provider."""

    async def _answer(self, words: str | Sequence[str], given: object, log: str) -> Ended:
        """Return how a program ended that must succeed; raise ProviderError."""
        try:
            ended = await self._programs.run(_words(words), given, log)
        except NotStarted as error:
            raise ProviderError(str(error)) from None
        if ended.code != 0:
            raise ProviderError(f"{log} failed: {ended.why}")
        return ended

    def _who(self) -> dict[str, Any]:
        """Return what every program gets."""
        owner = self._opening.owner
        return {
            "version": VERSION,
            "cluster": self._opening.cluster,
            "owner": owner,
            "tags": {OWNER_TAG: owner},
            "name_prefix": name_prefix(owner),
        }

    def _asked(self, order: Order) -> dict[str, Any]:
        """Return what `create` gets."""
        offer = order.offer
        asked = {
            **self._who(),
            "machine": order.machine,
            "token": order.token,
            "name": order.name,
            "tags": order.tags,
            "group": order.group,
            "type": offer.type,
            "zone": offer.zone,
            "spot": offer.spot,
            "cpu": offer.resources.cpu / 1000,
            "memory": offer.resources.memory,
            "gpu": offer.resources.gpu,
        }
        return asked | self._asked_for(order)

    def _asked_for(self, order: Order) -> dict[str, Any]:
        """Return what starts the agent of a machine."""
        return {
            "join": order.join,
            "agent_options": offer_options(order.offer),
            "user_data": user_data(order, program=self._form.program),
        }

    def _is_ours(self, machine: _Machine) -> bool:
        """Return whether a machine belongs to our owner, by its tag, or else by its name."""
        owner = machine.tags.get(OWNER_TAG)
        if owner is None:
            return machine.name.startswith(name_prefix(self._opening.owner))
        return owner == self._opening.owner


class CommandMaker(CommandProvider, ClusterMaker):
    """Rents whole clusters through programs."""

    async def kubeconfig(self, id_: str) -> str:
        """See ClusterMaker."""
        said = await self._answer(self._form.kubeconfig, {**self._who(), "id": id_}, "kubeconfig")
        if len(said.answer) > MOST_OUTPUT:
            raise ProviderError(f"kubeconfig wrote more than {MOST_OUTPUT >> 20} MiB")
        try:
            text = said.answer.decode()
        except UnicodeDecodeError:
            raise ProviderError("kubeconfig wrote something else than text") from None
        if not text.strip():
            raise ProviderError("kubeconfig wrote nothing; it must write the kubeconfig to standard output")
        return text

    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        """See ClusterMaker."""
        asked = {**self._who(), "id": id_, "nodes": nodes, "drop": [*drop]}
        await self._answer(self._form.resize, asked, "resize")

    def _asked_for(self, order: Order) -> dict[str, Any]:
        """Return how large a cluster is, and the labels of its nodes."""
        return {"nodes": order.nodes, "labels": order.offer.agent_labels}


def _listed(machine: _Machine) -> Listed:
    return Listed(
        machine.id,
        machine.state,
        machine.tags.get(MACHINE_TAG, ""),
        machine.tags.get(OWNER_TAG, ""),
        machine.name,
        _at(machine.at),
        plain(machine.reason).strip(),
        machine.interrupted,
        machine.nodes,
    )


def _decoded(ended: Ended, form: type[Any]) -> tuple[Any, str]:
    """Return the answer of a program in its form, or None and what is wrong with it."""
    if len(ended.answer) > MOST_OUTPUT:
        return None, f"it has more than {MOST_OUTPUT >> 20} MiB"
    try:
        return msgspec.json.decode(ended.answer, type=form), ""
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return None, plain(str(error))


def _at(text: str) -> int | None:
    """Return a time of a program in nanoseconds; None if it wrote none that can be read."""
    try:
        return parse_time(text) if text else None
    except UnitError:
        return None


def _words(said: str | Sequence[str]) -> list[str]:
    """Return the words of a command; raise ValueError."""
    return shlex.split(said) if isinstance(said, str) else [*said]


def _timeout(form: CommandForm, found: Findings) -> int:
    """Return the time limit of a program in nanoseconds."""
    return duration(form.timeout, ("timeout",), found, least=SECOND // 10, most=DAY) or 5 * 60 * SECOND
