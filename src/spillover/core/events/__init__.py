"""Events: facts in the journal. The journal holds nothing else, and only `apply` turns events into state.

An event carries outcomes (cost, attempt, latest start), so applying it only assigns values. A new meaning is a new
event type. New fields are added at the end, with a default.
"""

from typing import TypeAlias

from spillover.core.events.base import (
    Back,
    CounterName,
    Event,
    Evidence,
    JobState,
    Lease,
    Like,
    Outcome,
    PeriodRef,
    Reached,
    Stop,
    TaskEnd,
    Unmoved,
    Usage,
)
from spillover.core.events.clusters import (
    AgentDraining,
    AgentForgotten,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    AgentsConfigured,
    ClusterAdded,
    ClusterChanged,
    ClusterDraining,
    ClusterOpened,
    ClusterRemoved,
    ClusterResumed,
    ClustersConfigured,
    ClusterUpdated,
    NodesSeen,
    NodeUse,
    SeenNode,
)
from spillover.core.events.jobs import (
    BackoffEnded,
    DependencyEnded,
    JobChanged,
    JobEnded,
    JobHeld,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    JobsAdmitted,
    JobsArchived,
    JobStopping,
    JobSubmitted,
    MembersDropped,
    WaitsExpired,
)
from spillover.core.events.leases import (
    CostHeld,
    GangPlaced,
    JobPlaced,
    JobStarted,
    LeaseMoved,
    LeasesRevoked,
    MemberPlaced,
    StealAsked,
    StealRefused,
    TaskRestarted,
    TasksBound,
    TasksEnded,
    TasksStarted,
)
from spillover.core.events.machines import (
    ClusterSized,
    MachineAdmitted,
    MachineCostsDropped,
    MachineFound,
    MachineGone,
    MachineHeld,
    MachineJoined,
    MachineMade,
    MachineNoticed,
    MachineRefused,
    MachinesDraining,
    MachinesEnding,
    MachinesHeld,
    MachinesKept,
    MachinesWanted,
    PoolOpened,
    PoolPaused,
    PoolResumed,
    SpotPriced,
    Wish,
)
from spillover.core.events.reservations import (
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
    ReservationMoved,
)
from spillover.core.events.secrets import SecretRemoved, SecretSet
from spillover.core.events.server import (
    BudgetReached,
    BudgetsConfigured,
    ClockJumped,
    Decided,
    EpochStarted,
    Identified,
    PolicyChanged,
    PolicyDisabled,
    QueuesConfigured,
    SignedIn,
    TokenCreated,
    TokenRevoked,
)

__all__ = [
    "AgentDraining",
    "AgentForgotten",
    "AgentLost",
    "AgentRegistered",
    "AgentResumed",
    "AgentsConfigured",
    "AnyEvent",
    "Back",
    "BackoffEnded",
    "BudgetReached",
    "BudgetsConfigured",
    "ClockJumped",
    "ClusterAdded",
    "ClusterChanged",
    "ClusterDraining",
    "ClusterOpened",
    "ClusterRemoved",
    "ClusterResumed",
    "ClusterSized",
    "ClusterUpdated",
    "ClustersConfigured",
    "CostHeld",
    "CounterName",
    "Decided",
    "DependencyEnded",
    "EpochStarted",
    "Event",
    "Evidence",
    "GangPlaced",
    "Identified",
    "JobChanged",
    "JobEnded",
    "JobHeld",
    "JobPlaced",
    "JobReleased",
    "JobReprioritised",
    "JobRequeued",
    "JobStarted",
    "JobState",
    "JobStopping",
    "JobSubmitted",
    "JobsAdmitted",
    "JobsArchived",
    "Lease",
    "LeaseMoved",
    "LeasesRevoked",
    "Like",
    "MachineAdmitted",
    "MachineCostsDropped",
    "MachineFound",
    "MachineGone",
    "MachineHeld",
    "MachineJoined",
    "MachineMade",
    "MachineNoticed",
    "MachineRefused",
    "MachinesDraining",
    "MachinesEnding",
    "MachinesHeld",
    "MachinesKept",
    "MachinesWanted",
    "MemberPlaced",
    "MembersDropped",
    "NodeUse",
    "NodesSeen",
    "Outcome",
    "PeriodRef",
    "PolicyChanged",
    "PolicyDisabled",
    "PoolOpened",
    "PoolPaused",
    "PoolResumed",
    "QueuesConfigured",
    "Reached",
    "ReservationCancelled",
    "ReservationEnded",
    "ReservationMade",
    "ReservationMoved",
    "SecretRemoved",
    "SecretSet",
    "SeenNode",
    "SignedIn",
    "SpotPriced",
    "StealAsked",
    "StealRefused",
    "Stop",
    "TaskEnd",
    "TaskRestarted",
    "TasksBound",
    "TasksEnded",
    "TasksStarted",
    "TokenCreated",
    "TokenRevoked",
    "Unmoved",
    "Usage",
    "WaitsExpired",
    "Wish",
]

AnyEvent: TypeAlias = (
    JobSubmitted
    | JobsAdmitted
    | WaitsExpired
    | LeasesRevoked
    | JobPlaced
    | GangPlaced
    | MemberPlaced
    | MembersDropped
    | CostHeld
    | JobStarted
    | TasksStarted
    | TasksEnded
    | TaskRestarted
    | StealAsked
    | StealRefused
    | LeaseMoved
    | JobStopping
    | JobRequeued
    | JobEnded
    | BackoffEnded
    | JobHeld
    | JobReleased
    | DependencyEnded
    | JobReprioritised
    | JobChanged
    | JobsArchived
    | ClustersConfigured
    | ClusterAdded
    | ClusterUpdated
    | ClusterOpened
    | ClusterDraining
    | ClusterResumed
    | ClusterRemoved
    | BudgetsConfigured
    | BudgetReached
    | QueuesConfigured
    | AgentRegistered
    | AgentDraining
    | AgentResumed
    | AgentLost
    | AgentForgotten
    | AgentsConfigured
    | NodesSeen
    | ClusterChanged
    | TasksBound
    | SignedIn
    | TokenCreated
    | TokenRevoked
    | ReservationMade
    | ReservationMoved
    | ReservationCancelled
    | ReservationEnded
    | SecretSet
    | SecretRemoved
    | EpochStarted
    | Identified
    | ClockJumped
    | PolicyChanged
    | PolicyDisabled
    | Decided
    | MachineAdmitted
    | MachineCostsDropped
    | MachineFound
    | MachineGone
    | MachineJoined
    | MachineMade
    | MachineNoticed
    | MachineRefused
    | MachinesDraining
    | MachinesEnding
    | ClusterSized
    | MachinesHeld
    | MachinesKept
    | MachinesWanted
    | PoolOpened
    | PoolPaused
    | PoolResumed
    | SpotPriced
)
