"""Reads what only agents do for a job: a signal before its walltime, a folder that outlives attempts, an environment, secrets."""

from pathlib import PurePosixPath
from typing import Final, NamedTuple

from msgspec.structs import replace

from spillover.forms.jobs.secrets import read_secrets
from spillover.forms.jobs.work import check_image
from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import check_name, duration
from spillover.model.admission import (
    CONTAINER_CALLS,
    ENVIRONMENT,
    PYTHON,
    REQUIREMENTS,
    SECRETS,
    SIGNALS,
    STATE,
)
from spillover.model.job import Environment, SecretUse, Shape, Terms, is_pylock
from spillover.wire.jobfile import SpecDoc

SIGNAL_NUMBERS: Final = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "USR1": 10,
    "USR2": 12,
    "ALRM": 14,
    "TERM": 15,
    "CONT": 18,
    "URG": 23,
    "XCPU": 24,
    "WINCH": 28,
}
"""Signals that a job may ask for, with the numbers of Linux. KILL and STOP tell a program nothing."""


MOST_TEXT: Final = 1 << 18
"""Most bytes of a list of packages, because it is sent with every task."""


class OnAgents(NamedTuple):
    """The fields of a job that only agents can fulfil; the defaults ask for nothing."""

    signal: str = ""
    signal_before: int = 0
    keep_state: bool = False
    environment: Environment | None = None
    secrets: tuple[SecretUse, ...] = ()


_NOTHING: Final = OnAgents()


def read_on_agents(doc: SpecDoc, shape: Shape, terms: Terms, found: Findings) -> tuple[OnAgents, Shape]:
    """Return these fields, and the shape of a job that only runs where they are fulfilled."""
    signals = doc.signal_before is not None or doc.signal is not None
    if not (signals or doc.keep_state or doc.secrets) and doc.environment is None:
        return _NOTHING, shape
    runs = {*shape.runs}
    runs |= {SIGNALS} if signals else set()
    runs |= {STATE} if doc.keep_state else set()
    runs |= {SECRETS} if doc.secrets else set()
    signal, before = _signal(doc, terms, found) if signals else ("", 0)
    environment = _environment(doc, shape, found)
    asked = OnAgents(signal, before, doc.keep_state, environment, read_secrets(doc, found))
    needs = {*shape.needs}
    if environment is not None:
        needs |= {*implied_by(environment)}
        # The interpreter is that of the image, so the agent itself needs none.
        needs -= {PYTHON} if environment.image else set()
    return asked, replace(shape, runs=tuple(sorted(runs)), needs=tuple(sorted(needs)))


def implied_by(environment: Environment) -> tuple[str, ...]:
    """Return the words that an agent must offer for an environment."""
    if environment.image:
        return (CONTAINER_CALLS,)
    return (f"{ENVIRONMENT}{environment.name}" if environment.name else REQUIREMENTS,)


def _environment(doc: SpecDoc, shape: Shape, found: Findings) -> Environment | None:
    """Read the Python environment."""
    asked, path = doc.environment, ("spec", "environment")
    if asked is None:
        return None
    if sum(each is not None for each in (asked.name, asked.requirements, asked.image)) != 1:
        found.add(path, "needs one of `name`, `requirements` and `image`")
        return None
    if asked.text is not None and asked.requirements is None:
        found.add((*path, "text"), "is only allowed with `requirements`")
    if asked.image is not None:
        return _image(doc, asked.image, shape, found)
    if any(each.container is not None for each in (doc, *(doc.groups or ()))):
        found.add(path, "is not for containers; their image has the environment")
    if asked.name is not None:
        check_name(asked.name, (*path, "name"), found)
        return Environment(asked.name)
    if not asked.requirements or "\0" in asked.requirements:
        found.add(
            (*path, "requirements"), f"{shown(asked.requirements)} is not a file; write requirements.txt"
        )
    elif (wrong := not_a_list(asked.requirements)) is not None:
        found.add((*path, "requirements"), wrong)
    if asked.text is not None and (problem := not_text(asked.text)) is not None:
        found.add((*path, "text"), problem)
    return Environment("", asked.requirements or "", asked.text)


def _image(doc: SpecDoc, image: str, shape: Shape, found: Findings) -> Environment:
    """Read the image in which a call is made."""
    path = ("spec", "environment", "image")
    if doc.groups is not None or shape.is_gang:
        found.add(path, "is not for gangs; a call in a container is one task")
    elif doc.python is None:
        found.add(path, "is only for `python`; for other work write `container` with `image` and `command`")
    check_image(image, path, found)
    return Environment(image=image)


_UV: Final = "uv export --format requirements-txt --output-file requirements.txt"
_EXPORTS: Final = {
    "uv.lock": _UV,
    "pyproject.toml": "uv pip compile pyproject.toml --output-file requirements.txt",
    "poetry.lock": "poetry export --output requirements.txt",
    "pdm.lock": "pdm export --output requirements.txt",
    "Pipfile": "pipenv requirements > requirements.txt",
    "Pipfile.lock": "pipenv requirements > requirements.txt",
}
"""Files of projects that are no lists of packages, each with the command that makes one of them."""


def not_a_list(name: str) -> str | None:
    """Return why a file of this name is no list of packages that every agent can install; None if it may be one."""
    file = PurePosixPath(name).name
    if is_pylock(file):
        return None
    if file.startswith("pylock.") and file.endswith(".toml"):
        return f"{shown(file)} is not a name of a lock file for pip and uv; call it pylock.toml or pylock.NAME.toml, without a dot in NAME"
    if (command := _EXPORTS.get(file)) is not None:
        return f"{shown(file)} is not a list of packages; make one with `{command}`, and name that"
    if file.endswith((".lock", ".toml", ".yml", ".yaml")):
        return f"{shown(file)} is not a list of packages, as `pip install -r` takes it; make one, such as with `pip freeze`"
    return None


def not_text(text: str) -> str | None:
    """Return why a text cannot be the list of packages; None if it can."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "is not UTF-8 text"
    if "\0" in text:
        return "contains a NUL character"
    return None if size <= MOST_TEXT else f"has {size} bytes; the maximum is {MOST_TEXT}"


def _signal(doc: SpecDoc, terms: Terms, found: Findings) -> tuple[str, int]:
    """Read the signal that comes before the walltime, and how long before it."""
    name = signal_name(doc.signal or "TERM")
    if name is None:
        known = ", ".join(SIGNAL_NUMBERS)
        found.add(("spec", "signal"), f"{shown(doc.signal)} is not a signal to send; write one of {known}")
    if doc.signal_before is None:
        found.add(
            ("spec", "signal"), "needs `signal_before`: how long before the walltime it comes, as in 2m"
        )
        return "", 0
    before = duration(doc.signal_before, ("spec", "signal_before"), found, least=1) or 0
    if doc.walltime is None:
        found.add(("spec", "signal_before"), "needs `walltime`: the signal comes that long before its end")
    elif terms.walltime is not None and before >= terms.walltime:
        found.add(("spec", "signal_before"), f"{shown(doc.signal_before)} is not shorter than the walltime")
    return name or "", before


def signal_name(text: str) -> str | None:
    """Return the name of a signal that is written as `USR1`, `SIGUSR1` or 10; None if it is none of those to send."""
    if text.isascii() and text.isdigit():
        return next((name for name, number in SIGNAL_NUMBERS.items() if str(number) == text), None)
    name = text.upper().removeprefix("SIG")
    return name if name in SIGNAL_NUMBERS else None
