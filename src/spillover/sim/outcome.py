"""Defines the outcome of a job in a simulation."""

from msgspec import Struct


class JobOutcome(Struct, frozen=True, gc=False):
    """One job that ended."""

    job: int
    """Index in the list of jobs, from 0."""
    submit: int
    """Nanoseconds since the zero of the trace, as for all times here."""
    start: int
    """Start of the last attempt."""
    end: int
    cluster: str
    """Name of the cluster; `owned` or `rented` when simulating a trace."""
    node: str
    """The machine; several are joined by `+`; empty on unlimited capacity."""
    cost: int
    """Millionths, for all attempts."""
    reason: str
    """Code of the reason why it ran there."""
    abandoned: int = 0
    """Nanoseconds on rented capacity in attempts that did not complete the job."""
