"""Defines the options of an agent and reads them from the command line, for people and for servers."""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from spillover.agent.alone import EXIT, off_command
from spillover.agent.connection.finding import ServerFinder
from spillover.agent.connection.joining import read_join
from spillover.agent.connection.peers import Listening
from spillover.agent.files.cache import CACHE
from spillover.agent.notices import KINDS, METADATA
from spillover.agent.nursery.holes import LEAST_LIMIT
from spillover.agent.privileges import Helper, user_problem
from spillover.agent.tasks import gpus, topology
from spillover.agent.tasks.isolation import ISOLATIONS
from spillover.agent.tasks.process import OUTPUT_LIMIT
from spillover.forms.quantities import MOST_CPU, MOST_MEMORY, WORD_RULE, is_word
from spillover.model.bounds import is_plain
from spillover.model.hosts import is_loopback
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.inside import Inside
from spillover.model.resources import Resources
from spillover.model.units import SECOND, UnitError, format_memory, parse_cpu, parse_duration, parse_memory
from spillover.ports.provider import Join
from spillover.wire.tasks import MOST_QUEUE

DEFAULT_QUEUE = 256
ENVIRONMENTS = 20 << 30
"""Default size of the cache of environments in bytes."""
MOST_SOCKETS = 64
IN_JOIN = ("server", "token_file", "ca", "name", "cluster")
"""Options that `--join` replaces."""
MOST_ADDRESS = 255
"""Most characters of the name of a host."""


class AgentOptions(Struct, frozen=True):
    """The settings of an agent."""

    folder: Path
    """The agent's own folder."""
    finder: ServerFinder
    """Finds the server."""
    name: str
    cluster: str
    capacity: Resources
    queue: int
    """Number of prefetched leases, beyond those that run."""
    offers: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    drain: float = 0.0
    """Seconds for which tasks may keep running when the agent is asked to stop."""
    isolation: str = "auto"
    """How tasks are isolated and limited; one of ISOLATIONS."""
    output_limit: int = OUTPUT_LIMIT
    """Most bytes to keep of each output stream of a task."""
    cache: int = CACHE
    """Size of the cache of inputs in bytes."""
    environments: dict[str, str] = {}
    """Python environments by name: folders of virtual environments, or interpreters."""
    environment_cache: int = ENVIRONMENTS
    """Size of the cache of environments that it builds, in bytes."""
    devices: tuple[str, ...] = ()
    """Names of its GPUs, as many as its capacity has."""
    settings: dict[str, str] = {}
    """Settings of runners, by name."""
    peers: Listening = Listening()
    """Where other agents fetch tasks that they took over from this one."""
    inside: Inside | None = None
    """Sockets, cores, GPUs and links to report; None reports none."""
    address: str = ""
    """Where tasks on other machines reach tasks of gangs here; empty uses the address that reaches the server."""
    join: Join | None = None
    """What the machine was made with; None if a person runs this agent."""
    notices: str = ""
    """How to learn that the machine will be taken back, one of `notices.KINDS`; empty if it cannot be."""
    metadata: str = METADATA
    """URL of the machine's metadata service."""
    off: str = EXIT
    """The command that turns the machine off, `auto` or `exit`."""
    user: str = ""
    """The user that the agent and its tasks run as; empty for the one that started it."""
    helper: Helper | None = None
    """Does what needs root; None if the agent does that itself."""
    joined: Callable[[], None] | None = None
    """Called whenever the agent has registered."""


class Defaults(NamedTuple):
    """Defaults of options that differ between commands."""

    cpu: str = "1"
    memory: str = "1Gi"
    drain: str = "0s"
    sockets: str = "0"
    off: str = EXIT


def add_options(parser: argparse.ArgumentParser, defaults: Defaults) -> None:
    """Add the options of an agent to a parser."""
    parser.add_argument(
        "--join",
        metavar="FILE",
        help="JSON with server, cluster, name and token of a rented machine; - reads standard input",
    )
    parser.add_argument("--cpu", default=defaults.cpu, help="CPUs to use, such as 2 or 500m")
    parser.add_argument("--memory", default=defaults.memory, help="memory to use, such as 4Gi")
    parser.add_argument(
        "--gpu",
        type=int,
        default=None,
        metavar="N",
        help="GPUs to use (default: all that are found)",
    )
    parser.add_argument(
        "--sockets",
        default=defaults.sockets,
        metavar="N",
        help="report its CPUs and GPUs as N equal sockets; auto: as the kernel shows; 0: none"
        f" (default: {defaults.sockets})",
    )
    parser.add_argument(
        "--gpu-link",
        default="",
        metavar="KIND",
        help="with --sockets N: all GPUs of a socket have this link, such as nvlink",
    )
    parser.add_argument(
        "--queue", type=int, default=DEFAULT_QUEUE, metavar="N", help="leases to hold beyond the running ones"
    )
    parser.add_argument(
        "--offer", action="append", default=[], metavar="WORD", help="a word that jobs may need"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="shown with the agent"
    )
    parser.add_argument(
        "--isolation",
        choices=ISOLATIONS,
        default="auto",
        help="how to enforce the resource requests of tasks",
    )
    parser.add_argument(
        "--output-limit",
        default="64Mi",
        metavar="SIZE",
        help="most bytes to keep of each output stream of a task",
    )
    parser.add_argument(
        "--cache",
        default="10Gi",
        metavar="SIZE",
        help="size of the cache of inputs",
    )
    parser.add_argument(
        "--environment",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="Python environment for jobs that name it: the folder of a virtual environment, or an interpreter",
    )
    parser.add_argument(
        "--environment-cache",
        default="20Gi",
        metavar="SIZE",
        help="size of the cache of environments that the agent builds",
    )
    parser.add_argument("--python", metavar="PATH", help="interpreter for Python calls (default: this one)")
    parser.add_argument(
        "--python-calls",
        type=int,
        default=None,
        metavar="N",
        help="calls after which a worker process is replaced (default: 50000)",
    )
    parser.add_argument(
        "--engine", metavar="PATH", help="docker or podman, for containers (default: found on PATH)"
    )
    parser.add_argument(
        "--engine-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="option for every container, such as --engine-option=--network=none",
    )
    parser.add_argument(
        "--peer",
        metavar="HOST:PORT",
        help="address where other agents fetch tasks that they stole (default: on loopback, if the server is local)",
    )
    parser.add_argument(
        "--peer-cert", type=Path, metavar="FILE", help="certificate for --peer, of the server's authority"
    )
    parser.add_argument("--peer-key", type=Path, metavar="FILE", help="key of that certificate")
    parser.add_argument(
        "--address",
        default="",
        metavar="HOST",
        help="where other tasks of a gang reach those on this machine (default: its address towards the server)",
    )
    parser.add_argument(
        "--drain-timeout",
        default=defaults.drain,
        metavar="DURATION",
        help=f"how long tasks may keep running after SIGTERM (default: {defaults.drain})",
    )
    parser.add_argument(
        "--notices",
        choices=sorted(KINDS),
        help="cloud that announces on this machine when it takes it back (default: that of --join, or none)",
    )
    parser.add_argument(
        "--metadata",
        default=METADATA,
        metavar="URL",
        help=f"metadata service of that cloud (default: {METADATA})",
    )
    parser.add_argument(
        "--user",
        default="",
        metavar="NAME",
        help="run the agent and its tasks as this user, if root starts it; they cannot reach the metadata service then",
    )
    parser.add_argument(
        "--off",
        default=defaults.off,
        metavar="COMMAND",
        help="turns the machine off when it is alone (alone_for of --join); exit: the agent only exits;"
        f" auto: power off if it runs as root on a machine with an init system (default: {defaults.off})",
    )


def _listening(given: argparse.Namespace) -> Listening:
    """Read where to listen for other agents; raise ValueError with the problem."""
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
            problem = f"{name} {path} is not a file" if path else f"--peer {given.peer} needs {name} FILE"
            raise ValueError(f"{problem}; agents talk to each other over TLS beyond loopback")
    return Listening(given.peer, given.peer_cert, given.peer_key)


def read_joining(given: argparse.Namespace) -> Join | None:
    """Read the file of `--join`, and take name and cluster from it; None if there is no such option.

    Raises ValueError with all problems, one a line.
    """
    if given.join is None:
        return None
    twice = [f"--{flag.replace('_', '-')}" for flag in IN_JOIN if getattr(given, flag, None)]
    if twice:
        raise ValueError(
            f"--join says what {' and '.join(twice)} would say; remove {'it' if len(twice) == 1 else 'them'}"
        )
    join = read_join(given.join)
    given.name, given.cluster = join.name, join.cluster
    return join


def read_options(
    given: argparse.Namespace, data: Path, finder: ServerFinder, join: Join | None = None
) -> AgentOptions:
    """Read the options of an agent whose folder is in `data`; raise ValueError with all problems, one a line."""
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
        wrong.append(f"--queue is {given.queue}; the maximum is {MOST_QUEUE}")
    wrong += [
        f"--offer {word[:100]!r} is not a valid word; write {WORD_RULE}"
        for word in given.offer
        if not is_word(word)
    ]
    limit = _quantity("--output-limit", given.output_limit, parse_memory, wrong, LEAST_LIMIT)
    cache = _quantity("--cache", given.cache, parse_memory, wrong)
    built = _quantity("--environment-cache", given.environment_cache, parse_memory, wrong)
    environments = dict(each.partition("=")[::2] for each in given.environment)
    wrong += [
        f"--environment {name}={path}: write NAME=PATH, where PATH is a virtual environment or an interpreter"
        for name, path in environments.items()
        if not is_name(name) or not path
    ]
    drain = _quantity("--drain-timeout", given.drain_timeout, parse_duration, wrong)
    if not is_plain(given.address, MOST_ADDRESS) or " " in given.address:
        wrong.append(f"--address {given.address[:80]!r} is not a host name or an IP address")
    wrong += [
        f"--label {label!r} is not KEY=VALUE"
        for label in given.label
        if not label.partition("=")[0] or "=" not in label
    ]
    wrong += _rented_problems(given)
    peers, settings = Listening(), dict[str, str]()
    try:
        peers = _listening(given)
    except ValueError as error:
        wrong.append(str(error))
    try:
        settings = _settings(given)
    except ValueError as error:
        wrong.append(str(error))
    sockets = -1 if given.sockets == "auto" else int(given.sockets) if given.sockets.isdigit() else None
    if sockets is None or sockets > MOST_SOCKETS:
        wrong.append(f"--sockets {given.sockets!r} is not auto or a number up to {MOST_SOCKETS}")
    if given.gpu_link and (sockets is None or sockets <= 0 or not is_name(given.gpu_link)):
        wrong.append(f"--gpu-link {given.gpu_link!r} must be a name, and goes with --sockets N")
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
        environments=environments,
        environment_cache=built,
        peers=peers,
        devices=devices,
        settings=settings,
        inside=_inside(cpu, devices, sockets or 0, given.gpu_link),
        address=given.address,
        join=join,
        notices=given.notices or (join.notices if join is not None else ""),
        metadata=given.metadata,
        off=given.off,
        user=given.user,
    )


def _rented_problems(given: argparse.Namespace) -> list[str]:
    """Return what is wrong with the options for rented machines."""
    wrong = [problem] if given.user and (problem := user_problem(given.user)) is not None else []
    if not given.metadata.startswith("http://"):
        wrong.append(f"--metadata {given.metadata[:80]!r} is not a URL that begins with http://")
    try:
        program = off_command(given.off)
    except ValueError as error:
        return [*wrong, f"--off {given.off!r} is not a command: {error}"]
    if program and shutil.which(program[0]) is None:
        wrong.append(f"--off {program[0]}: there is no such program")
    return wrong


def _inside(cpu: int, devices: tuple[str, ...], sockets: int, link: str) -> Inside | None:
    """Return the inside of the machine to report: as found, as configured, or only the GPUs."""
    if sockets < 0:
        return topology.find(cpu, devices)
    if sockets:
        return topology.divided(cpu, devices, sockets, link)
    return Inside(gpus=devices) if devices else None


def _quantity(
    flag: str,
    text: str,
    parse: Callable[[str], int],
    wrong: list[str],
    least: int = 0,
    most: int | None = None,
) -> int:
    """Parse the value of an option; on a problem add it to `wrong`."""
    try:
        value = parse(text)
    except UnitError as error:
        wrong.append(f"{flag}: {error}")
        return 0
    if value < least:
        wrong.append(
            f"{flag} {text} must be above 0"
            if least == 1
            else f"{flag} {text}: the minimum is {format_memory(least)}"
        )
    if most is not None and value > most:
        wrong.append(f"{flag} {text} is more than any machine has")
    return value


def _settings(given: argparse.Namespace) -> dict[str, str]:
    """Return the settings of runners, by name."""
    if given.python_calls is not None and given.python_calls < 1:
        raise ValueError("--python-calls must be above 0")
    for flag in ("python", "engine"):
        path = getattr(given, flag)
        if path is not None and shutil.which(path) is None:
            raise ValueError(f"--{flag} {path}: there is no such program")
    settings = {"python": given.python, "python_calls": given.python_calls, "engine": given.engine}
    settings["engine_options"] = "\0".join(given.engine_option) or None
    return {name: str(value) for name, value in settings.items() if value is not None}
