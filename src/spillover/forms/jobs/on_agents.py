"""Reads what only agents do for a job: a signal before its walltime, and a folder that outlives attempts."""

from typing import Final, NamedTuple

from msgspec.structs import replace

from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import duration
from spillover.model.admission import SIGNALS, STATE
from spillover.model.job import Shape, Terms
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


class OnAgents(NamedTuple):
    """The fields of a job that only agents can fulfil; the defaults ask for nothing."""

    signal: str = ""
    signal_before: int = 0
    keep_state: bool = False


_NOTHING: Final = OnAgents()


def read_on_agents(doc: SpecDoc, shape: Shape, terms: Terms, found: Findings) -> tuple[OnAgents, Shape]:
    """Return these fields, and the shape of a job that only runs where they are fulfilled."""
    signals = doc.signal_before is not None or doc.signal is not None
    if not signals and not doc.keep_state:
        return _NOTHING, shape
    runs = {*shape.runs}
    runs |= {SIGNALS} if signals else set()
    runs |= {STATE} if doc.keep_state else set()
    signal, before = _signal(doc, terms, found) if signals else ("", 0)
    return OnAgents(signal, before, doc.keep_state), replace(shape, runs=tuple(sorted(runs)))


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
