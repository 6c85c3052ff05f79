"""How an agent is started, and what may be said of that on the command line: the same whether a server starts it or people do."""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from spillover.agent import gpus
from spillover.agent.files import CACHE
from spillover.agent.finding import ServerFinder
from spillover.agent.isolation import ISOLATIONS
from spillover.agent.nursery.holes import LEAST_LIMIT
from spillover.agent.peers import Listening
from spillover.agent.process import OUTPUT_LIMIT
from spillover.forms.quantities import MOST_CPU, MOST_MEMORY, WORD_RULE, is_word
from spillover.model.hosts import is_loopback
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.resources import Resources
from spillover.model.units import SECOND, UnitError, format_memory, parse_cpu, parse_duration, parse_memory
from spillover.wire.tasks import MOST_QUEUE

DEFAULT_QUEUE = 256


class AgentOptions(Struct, frozen=True):
    """How an agent was started."""

    folder: Path
    """The agent's own."""
    finder: ServerFinder
    """Where its server is looked for."""
    name: str
    cluster: str
    capacity: Resources
    queue: int
    """Leases beyond those that run."""
    offers: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    drain: float = 0.0
    """Seconds that tasks may go on when the agent is told to stop."""
    isolation: str = "auto"
    """What keeps tasks apart and within what they asked for; one of ISOLATIONS."""
    output_limit: int = OUTPUT_LIMIT
    """Bytes that are kept of each stream of a task."""
    cache: int = CACHE
    """Bytes of files that are kept for tasks that need them."""
    devices: tuple[str, ...] = ()
    """Names of its GPUs, as many as its capacity has."""
    settings: dict[str, str] = {}
    """For runners, by name."""
    peers: Listening = Listening()
    """Where other agents may ask for tasks that they took over from this one."""


class Defaults(NamedTuple):
    """What holds where nothing is said."""

    cpu: str = "1"
    memory: str = "1Gi"
    drain: str = "0s"


def add_options(parser: argparse.ArgumentParser, defaults: Defaults) -> None:
    """What an agent has, offers and bears."""
    parser.add_argument("--cpu", default=defaults.cpu, help="CPUs that it may use, such as 2 or 500m")
    parser.add_argument("--memory", default=defaults.memory, help="memory that it may use, such as 4Gi")
    parser.add_argument(
        "--gpu",
        type=int,
        default=None,
        metavar="N",
        help="GPUs that it may use (default: those that are found)",
    )
    parser.add_argument(
        "--queue", type=int, default=DEFAULT_QUEUE, metavar="N", help="leases to hold beyond those that run"
    )
    parser.add_argument(
        "--offer", action="append", default=[], metavar="WORD", help="a word that jobs may need"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="shown with the agent"
    )
    parser.add_argument(
        "--isolation", choices=ISOLATIONS, default="auto", help="what keeps tasks within what they asked for"
    )
    parser.add_argument(
        "--output-limit",
        default="64Mi",
        metavar="SIZE",
        help="the most that is kept of each stream of a task",
    )
    parser.add_argument(
        "--cache",
        default="10Gi",
        metavar="SIZE",
        help="how much of inputs is kept for other tasks that need them",
    )
    parser.add_argument(
        "--python", metavar="PATH", help="the interpreter that makes Python calls (default: this one)"
    )
    parser.add_argument(
        "--python-calls",
        type=int,
        default=None,
        metavar="N",
        help="calls after which a process that makes them is replaced (default: 50000)",
    )
    parser.add_argument(
        "--engine", metavar="PATH", help="docker or podman, for containers (default: what PATH has)"
    )
    parser.add_argument(
        "--engine-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="given to the engine with every container, as --engine-option=--network=none",
    )
    parser.add_argument(
        "--peer",
        metavar="HOST:PORT",
        help="where other agents may ask it for tasks that they took over (default: on loopback, beside the server)",
    )
    parser.add_argument(
        "--peer-cert", type=Path, metavar="FILE", help="certificate for --peer, of the server's authority"
    )
    parser.add_argument("--peer-key", type=Path, metavar="FILE", help="key of that certificate")
    parser.add_argument(
        "--drain-timeout",
        default=defaults.drain,
        metavar="DURATION",
        help=f"how long tasks may go on after SIGTERM (default: {defaults.drain})",
    )


def _listening(given: argparse.Namespace) -> Listening:
    """Where other agents may ask; raises ValueError with what is wrong."""
    if given.peer is None:
        if given.peer_cert or given.peer_key:
            raise ValueError("--peer-cert and --peer-key go with --peer HOST:PORT")
        return Listening()
    host, _, port = given.peer.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--peer {given.peer!r} is not HOST:PORT")
    if is_loopback(given.peer):
        return Listening(given.peer)
    for flag in ("peer_cert", "peer_key"):
        path = getattr(given, flag)
        if path is None or not path.is_file():
            name = f"--{flag.replace('_', '-')}"
            told = f"{name} {path} is no file" if path else f"--peer {given.peer} needs {name} FILE"
            raise ValueError(f"{told}: other agents are only spoken to over TLS beyond loopback")
    return Listening(given.peer, given.peer_cert, given.peer_key)


def read_options(given: argparse.Namespace, data: Path, finder: ServerFinder) -> AgentOptions:
    """The options of an agent whose folder is in `data`; raises ValueError with all that is wrong, one line each."""
    wrong = [
        f"--{flag} {getattr(given, flag)!r} is not {NAME_RULE}"
        for flag in ("name", "cluster")
        if not is_name(getattr(given, flag))
    ]
    cpu = _quantity("--cpu", given.cpu, parse_cpu, wrong, 1, MOST_CPU)
    memory = _quantity("--memory", given.memory, parse_memory, wrong, 1, MOST_MEMORY)
    if (given.gpu or 0) < 0:
        wrong.append(f"--gpu {given.gpu} must not be below 0")
    if given.queue < 0:
        wrong.append(f"--queue {given.queue} must not be below 0")
    if given.queue > MOST_QUEUE:
        wrong.append(f"--queue is {given.queue}; the most is {MOST_QUEUE}")
    wrong += [
        f"--offer {word[:100]!r} is not a word to match; write {WORD_RULE}"
        for word in given.offer
        if not is_word(word)
    ]
    limit = _quantity("--output-limit", given.output_limit, parse_memory, wrong, LEAST_LIMIT)
    cache = _quantity("--cache", given.cache, parse_memory, wrong)
    drain = _quantity("--drain-timeout", given.drain_timeout, parse_duration, wrong)
    wrong += [
        f"--label {label!r} is not KEY=VALUE"
        for label in given.label
        if not label.partition("=")[0] or "=" not in label
    ]
    peers, settings = Listening(), dict[str, str]()
    try:
        peers = _listening(given)
    except ValueError as error:
        wrong.append(str(error))
    try:
        settings = _settings(given)
    except ValueError as error:
        wrong.append(str(error))
    if wrong:
        raise ValueError("\n".join(wrong))
    devices = gpus.named(given.gpu, gpus.find() if given.gpu != 0 else ())
    return AgentOptions(
        folder=data / "agents" / given.name,
        finder=finder,
        name=given.name,
        cluster=given.cluster,
        capacity=Resources(cpu, memory, len(devices)),
        queue=given.queue,
        offers=tuple(given.offer),
        labels=dict(label.partition("=")[::2] for label in given.label),
        drain=drain / SECOND,
        isolation=given.isolation,
        output_limit=limit,
        cache=cache,
        peers=peers,
        devices=devices,
        settings=settings,
    )


def _quantity(
    flag: str,
    text: str,
    parse: Callable[[str], int],
    wrong: list[str],
    least: int = 0,
    most: int | None = None,
) -> int:
    """What an option says; 0 with what is wrong with it noted."""
    try:
        value = parse(text)
    except UnitError as error:
        wrong.append(f"{flag}: {error}")
        return 0
    if value < least:
        wrong.append(
            f"{flag} {text} must be above 0"
            if least == 1
            else f"{flag} {text}: the least is {format_memory(least)}"
        )
    if most is not None and value > most:
        wrong.append(f"{flag} {text} is more than any machine has")
    return value


def _settings(given: argparse.Namespace) -> dict[str, str]:
    """What runners are told, by name."""
    if given.python_calls is not None and given.python_calls < 1:
        raise ValueError("--python-calls must be above 0")
    for flag in ("python", "engine"):
        path = getattr(given, flag)
        if path is not None and shutil.which(path) is None:
            raise ValueError(f"--{flag} {path}: there is no such program")
    settings = {"python": given.python, "python_calls": given.python_calls, "engine": given.engine}
    settings["engine_options"] = "\0".join(given.engine_option) or None
    return {name: str(value) for name, value in settings.items() if value is not None}
