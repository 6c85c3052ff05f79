"""The lives of jobs and agents, each as one table. `apply` walks them; the figures in the docs are drawn from them."""

from typing import Final

from spillover.core.events import (
    AgentDraining,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    EpochStarted,
    Event,
    GangPlaced,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobReleased,
    JobRequeued,
    JobStarted,
    JobState,
    JobStopping,
    LeaseMoved,
    MemberPlaced,
    StealAsked,
    StealRefused,
)

S: Final = JobState

TERMINAL: Final = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED, S.TIMED_OUT})
NEVER_RAN: Final = frozenset({S.CANCELLED, S.TIMED_OUT})

JOB: Final[dict[tuple[JobState, type[Event]], frozenset[JobState]]] = {
    (S.HELD, JobHeld): frozenset({S.HELD}),
    (S.HELD, JobReleased): frozenset({S.QUEUED}),
    (S.HELD, JobEnded): NEVER_RAN,
    (S.QUEUED, JobHeld): frozenset({S.HELD}),
    (S.QUEUED, JobPlaced): frozenset({S.PLACED}),
    (S.QUEUED, GangPlaced): frozenset({S.PLACED}),
    # An array stays queued while members are pending, and runs once all of them are jobs of their own.
    (S.QUEUED, MemberPlaced): frozenset({S.QUEUED, S.RUNNING}),
    (S.QUEUED, JobEnded): TERMINAL,
    (S.PLACED, JobStarted): frozenset({S.RUNNING}),
    (S.PLACED, StealAsked): frozenset({S.PLACED}),
    (S.PLACED, StealRefused): frozenset({S.PLACED}),
    (S.PLACED, LeaseMoved): frozenset({S.PLACED}),
    (S.PLACED, JobStopping): frozenset({S.PLACED}),
    (S.PLACED, JobRequeued): frozenset({S.QUEUED}),
    # A task may end so soon that its start and its end are told in one message.
    (S.PLACED, JobEnded): TERMINAL,
    (S.RUNNING, JobStopping): frozenset({S.RUNNING}),
    (S.RUNNING, JobRequeued): frozenset({S.QUEUED}),
    (S.RUNNING, JobEnded): TERMINAL,
}
"""Where each event may take a job. Terminal states have no row: they absorb."""

AGENT: Final[dict[tuple[str, type[Event]], str]] = {
    ("unknown", AgentRegistered): "ready",
    ("unobserved", AgentRegistered): "ready",
    ("ready", AgentRegistered): "ready",
    ("draining", AgentRegistered): "ready",
    ("lost", AgentRegistered): "ready",
    ("ready", AgentDraining): "draining",
    ("draining", AgentDraining): "draining",
    ("unobserved", AgentDraining): "unobserved",
    ("lost", AgentDraining): "lost",
    ("draining", AgentResumed): "ready",
    ("unobserved", AgentResumed): "unobserved",
    ("lost", AgentResumed): "lost",
    ("ready", AgentLost): "lost",
    ("draining", AgentLost): "lost",
    ("unobserved", AgentLost): "lost",
    ("ready", EpochStarted): "unobserved",
    ("draining", EpochStarted): "unobserved",
    ("unobserved", EpochStarted): "unobserved",
    ("lost", EpochStarted): "lost",
}
"""The state of an agent after each event that concerns it."""


class Impossible(Exception):
    """An event that no state allows: a bug of ours, with the story of the job."""


def figure() -> str:
    """The life of a job as a Mermaid diagram."""
    lines = ["stateDiagram-v2", "    [*] --> HELD: JobSubmitted", "    [*] --> QUEUED: JobSubmitted"]
    for (state, event), following in JOB.items():
        lines += [f"    {state} --> {target}: {event.__name__}" for target in JobState if target in following]
    lines += [f"    {state} --> [*]" for state in JobState if state in TERMINAL]
    return "\n".join(lines) + "\n"


def agent_figure() -> str:
    """The life of an agent as a Mermaid diagram."""
    lines = ["stateDiagram-v2", "    [*] --> unknown"]
    lines += [f"    {state} --> {target}: {event.__name__}" for (state, event), target in AGENT.items()]
    return "\n".join(lines) + "\n"
