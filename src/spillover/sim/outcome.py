"""What became of a job in a simulation."""

from msgspec import Struct


class JobOutcome(Struct, frozen=True, gc=False):
    """One job that ended."""

    job: int
    """Its place in the list of jobs, from 0."""
    submit: int
    """Nanoseconds from the trace's zero, as are the other times."""
    start: int
    """When the attempt began that finished it."""
    end: int
    cluster: str
    """Its name; `owned` or `rented` in a simulation of a trace."""
    node: str
    """The machine; several are joined by `+`; empty if it had none of its own."""
    cost: int
    """Millionths, of all of its attempts."""
    reason: str
    """Code of why it ran where it ran."""
    abandoned: int = 0
    """Nanoseconds that it ran on rented capacity in attempts that did not finish it."""
