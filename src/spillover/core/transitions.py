"""The lifecycles of jobs, agents, nodes and clusters, each as one table.

`apply` follows these tables, and the figures in the docs are generated from them.
"""

from typing import Final

from spillover.core.events import (
    AgentDraining,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    BackoffEnded,
    ClusterAdded,
    ClusterChanged,
    ClusterDraining,
    ClusterOpened,
    ClusterRemoved,
    ClusterResumed,
    ClustersConfigured,
    EpochStarted,
    Event,
    GangPlaced,
    JobChanged,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobReleased,
    JobRequeued,
    JobStarted,
    JobState,
    JobStopping,
    LeaseMoved,
    LeasesRevoked,
    MachineFound,
    MachineGone,
    MachineJoined,
    MachineMade,
    MachineRefused,
    MachinesDraining,
    MachinesEnding,
    MachinesKept,
    MachinesWanted,
    MemberPlaced,
    MemberSplit,
    NodesSeen,
    StealAsked,
    StealRefused,
    TaskRestarted,
    TasksBound,
    TasksEnded,
    TasksStarted,
)
from spillover.model.cluster import ClusterHealth, ClusterLife
from spillover.model.pools import MachineState

S: Final = JobState

TERMINAL: Final = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED, S.TIMED_OUT})
NEVER_RAN: Final = frozenset({S.CANCELLED, S.TIMED_OUT})

JOB: Final[dict[tuple[JobState, type[Event]], frozenset[JobState]]] = {
    (S.HELD, JobHeld): frozenset({S.HELD}),
    (S.HELD, JobReleased): frozenset({S.QUEUED}),
    (S.HELD, BackoffEnded): frozenset({S.HELD}),
    (S.HELD, JobEnded): NEVER_RAN,
    (S.HELD, JobChanged): frozenset({S.HELD}),
    (S.QUEUED, JobHeld): frozenset({S.HELD}),
    (S.QUEUED, JobChanged): frozenset({S.HELD, S.QUEUED}),
    (S.QUEUED, JobPlaced): frozenset({S.PLACED}),
    (S.QUEUED, GangPlaced): frozenset({S.PLACED}),
    # An array stays queued while members are pending, and is held while it has as many live ones as it may have. It
    # runs once each member has become a separate job.
    (S.QUEUED, MemberPlaced): frozenset({S.HELD, S.QUEUED, S.RUNNING}),
    (S.QUEUED, MemberSplit): frozenset({S.HELD, S.QUEUED, S.RUNNING}),
    (S.QUEUED, BackoffEnded): frozenset({S.QUEUED}),
    (S.QUEUED, JobEnded): TERMINAL,
    (S.PLACED, JobStarted): frozenset({S.RUNNING}),
    (S.PLACED, StealAsked): frozenset({S.PLACED}),
    (S.PLACED, StealRefused): frozenset({S.PLACED}),
    (S.PLACED, LeaseMoved): frozenset({S.PLACED}),
    (S.PLACED, LeasesRevoked): frozenset({S.PLACED}),
    (S.PLACED, TasksBound): frozenset({S.PLACED}),
    # Some tasks of a gang may end before any was reported as running. The job ends with the last one.
    (S.PLACED, TasksEnded): frozenset({S.PLACED}),
    (S.PLACED, BackoffEnded): frozenset({S.PLACED}),
    (S.PLACED, JobStopping): frozenset({S.PLACED}),
    (S.PLACED, JobRequeued): frozenset({S.QUEUED}),
    # A task may end so soon that one message reports both its start and its end.
    (S.PLACED, JobEnded): TERMINAL,
    (S.RUNNING, TasksBound): frozenset({S.RUNNING}),
    (S.RUNNING, TasksStarted): frozenset({S.RUNNING}),
    (S.RUNNING, TasksEnded): frozenset({S.RUNNING}),
    (S.RUNNING, TaskRestarted): frozenset({S.RUNNING}),
    (S.RUNNING, BackoffEnded): frozenset({S.RUNNING}),
    (S.RUNNING, JobStopping): frozenset({S.RUNNING}),
    (S.RUNNING, JobChanged): frozenset({S.RUNNING}),
    (S.RUNNING, JobRequeued): frozenset({S.QUEUED}),
    (S.RUNNING, JobEnded): TERMINAL,
}
"""The states to which each event may take a job. Terminal states have no row, because nothing leaves them."""

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
"""The status of an agent after each event that concerns it."""

NODE: Final[dict[tuple[str, type[Event], str], str]] = {
    ("unknown", NodesSeen, "ready"): "ready",
    ("unknown", NodesSeen, "not ready"): "closed",
    ("ready", NodesSeen, "ready"): "ready",
    ("ready", NodesSeen, "not ready"): "closed",
    ("ready", NodesSeen, "gone"): "gone",
    ("closed", NodesSeen, "ready"): "ready",
    ("closed", NodesSeen, "not ready"): "closed",
    ("closed", NodesSeen, "gone"): "gone",
    ("unobserved", NodesSeen, "ready"): "ready",
    ("unobserved", NodesSeen, "not ready"): "closed",
    ("unobserved", NodesSeen, "gone"): "gone",
    ("gone", NodesSeen, "gone"): "gone",
    ("gone", NodesSeen, "ready"): "ready",
    ("gone", NodesSeen, "not ready"): "closed",
    ("ready", EpochStarted, ""): "unobserved",
    ("closed", EpochStarted, ""): "unobserved",
    ("unobserved", EpochStarted, ""): "unobserved",
    ("gone", EpochStarted, ""): "gone",
}
"""The status of a node of an external cluster after each event, by what the event reports about the node.

A closed node does not answer or is cordoned. A gone node is removed when the last of our tasks has left it.
"""

H: Final = ClusterHealth

CLUSTER: Final[dict[ClusterHealth, tuple[ClusterHealth, ...]]] = {
    H.UNOBSERVED: (H.READY, H.DEGRADED, H.CLEARING, H.FAILED),
    H.READY: (H.DEGRADED, H.FAILED),
    H.DEGRADED: (H.READY, H.FAILED),
    H.FAILED: (H.CLEARING, H.READY),
    H.CLEARING: (H.READY, H.FAILED),
}
"""The healths that may follow each health of an external cluster.

A failed cluster becomes ready only when no unwanted objects are left there. Each server start makes it unobserved.
"""


L: Final = ClusterLife
AGENTS_OPEN: Final = "agents"
"""Stands for a cluster of agents where the table has the health of an external cluster."""
_BY_HEALTH: Final = {
    H.UNOBSERVED: L.CONNECTING,
    H.READY: L.READY,
    H.DEGRADED: L.UNREACHABLE,
    H.FAILED: L.UNREACHABLE,
    H.CLEARING: L.CONNECTING,
}

LIFE: Final[dict[tuple[ClusterLife | None, type[Event], str], ClusterLife]] = {
    (None, ClustersConfigured, AGENTS_OPEN): L.READY,
    **{(None, ClustersConfigured, health): life for health, life in _BY_HEALTH.items()},
    (None, ClusterAdded, ""): L.REQUESTED,
    (L.REQUESTED, ClusterOpened, AGENTS_OPEN): L.READY,
    **{(L.REQUESTED, ClusterOpened, health): life for health, life in _BY_HEALTH.items()},
    (L.DRAINING, ClusterOpened, ""): L.DRAINING,
    **{
        (before, ClusterChanged, health): life
        for before in (L.REQUESTED, L.CONNECTING, L.READY, L.UNREACHABLE)
        for health, life in _BY_HEALTH.items()
        if health is not H.UNOBSERVED
    },
    (L.DRAINING, ClusterChanged, ""): L.DRAINING,
    **{
        (before, ClusterDraining, ""): L.DRAINING
        for before in (L.REQUESTED, L.CONNECTING, L.READY, L.UNREACHABLE, L.DRAINING)
    },
    (L.DRAINING, ClusterResumed, AGENTS_OPEN): L.READY,
    **{(L.DRAINING, ClusterResumed, health): life for health, life in _BY_HEALTH.items()},
    **{(before, EpochStarted, ""): L.CONNECTING for before in (L.CONNECTING, L.READY, L.UNREACHABLE)},
    (L.REQUESTED, EpochStarted, ""): L.REQUESTED,
    (L.DRAINING, EpochStarted, ""): L.DRAINING,
    (L.READY, EpochStarted, AGENTS_OPEN): L.READY,
    (L.DRAINING, ClusterRemoved, ""): L.GONE,
}
"""The lifecycle state of a cluster after each event that concerns it. Only a ready cluster gets work.

None is the state before the first event. The last part of a key is the health of an external cluster, where that
matters.
"""


M: Final = MachineState

MACHINE: Final[dict[tuple[MachineState | None, type[Event]], MachineState]] = {
    (None, MachinesWanted): M.WANTED,
    (M.WANTED, MachineMade): M.BOOTING,
    (M.WANTED, MachineRefused): M.REFUSED,
    # An answer may come after the agent has joined, or after the plan has given the machine up.
    (M.WANTED, MachineJoined): M.READY,
    (M.BOOTING, MachineJoined): M.READY,
    (M.READY, MachineMade): M.READY,
    (M.DRAINING, MachineMade): M.DRAINING,
    (M.ENDING, MachineMade): M.ENDING,
    (M.ENDING, MachineRefused): M.GONE,
    (M.READY, MachinesDraining): M.DRAINING,
    (M.DRAINING, MachinesKept): M.READY,
    (M.WANTED, MachinesEnding): M.ENDING,
    (M.BOOTING, MachinesEnding): M.ENDING,
    (M.READY, MachinesEnding): M.ENDING,
    (M.DRAINING, MachinesEnding): M.ENDING,
    (M.WANTED, MachineGone): M.GONE,
    (M.BOOTING, MachineGone): M.GONE,
    (M.READY, MachineGone): M.GONE,
    (M.DRAINING, MachineGone): M.GONE,
    (M.ENDING, MachineGone): M.GONE,
    # A machine that was given up, or that nobody remembers, exists after all.
    (None, MachineFound): M.ENDING,
    (M.GONE, MachineFound): M.ENDING,
    (M.REFUSED, MachineFound): M.ENDING,
}
"""The state of a rented machine after each event. Observations are possible in every state in which it may exist."""


class Impossible(Exception):
    """An event that no state allows: a bug in Spillover. The message contains the job."""


def figure() -> str:
    """Return the lifecycle of a job as a Mermaid diagram."""
    lines = ["stateDiagram-v2", "    [*] --> HELD: JobSubmitted", "    [*] --> QUEUED: JobSubmitted"]
    for (state, event), following in JOB.items():
        lines += [f"    {state} --> {target}: {event.__name__}" for target in JobState if target in following]
    lines += [f"    {state} --> [*]" for state in JobState if state in TERMINAL]
    return "\n".join(lines) + "\n"


def agent_figure() -> str:
    """Return the lifecycle of an agent as a Mermaid diagram."""
    lines = ["stateDiagram-v2", "    [*] --> unknown"]
    lines += [f"    {state} --> {target}: {event.__name__}" for (state, event), target in AGENT.items()]
    return "\n".join(lines) + "\n"


def node_figure() -> str:
    """Return the lifecycle of a node of an external cluster as a Mermaid diagram."""
    lines = ["stateDiagram-v2", "    [*] --> unknown"]
    for (state, event, how), target in NODE.items():
        lines.append(f"    {state} --> {target}: {event.__name__}{f' ({how})' if how else ''}")
    return "\n".join(lines) + "\n"


def cluster_figure() -> str:
    """Return the health of an external cluster as a Mermaid diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {H.UNOBSERVED}"]
    for health, following in CLUSTER.items():
        lines += [f"    {health} --> {target}: ClusterChanged" for target in following]
    lines += [f"    {health} --> {H.UNOBSERVED}: EpochStarted" for health in CLUSTER]
    return "\n".join(lines) + "\n"


def machine_figure() -> str:
    """Return the life of a rented machine as a Mermaid diagram."""
    lines = ["stateDiagram-v2"]
    lines += [
        f"    {state or '[*]'} --> {target}: {event.__name__}" for (state, event), target in MACHINE.items()
    ]
    return "\n".join([*lines, f"    {M.GONE} --> [*]", f"    {M.REFUSED} --> [*]"]) + "\n"


def life_figure() -> str:
    """Return the lifecycle of a cluster as a Mermaid diagram."""
    lines = ["stateDiagram-v2"]
    for (life, event, how), target in LIFE.items():
        lines.append(f"    {life or '[*]'} --> {target}: {event.__name__}{f' ({how})' if how else ''}")
    return "\n".join([*lines, f"    {L.GONE} --> [*]"]) + "\n"
