"""Reasons as data: why a job waits, runs where it runs, or ended. "Not now" and "never" are different types.

A reason is shown as `{code, message, never}`. Its code is the tag of its type, so programs can rely on it.
"""

from functools import cache
from typing import TypeAlias

from spillover.model.reasons.base import Never, NotNow
from spillover.model.reasons.elsewhere import (
    AgentSilent,
    BackingOff,
    ClusterDown,
    ClusterDrained,
    NoNodeReady,
    NotConfigured,
    NotStarting,
)
from spillover.model.reasons.ending import (
    CancelledBy,
    ClusterFailed,
    CouldNotStart,
    DependencyFailed,
    DependencySucceeded,
    Exited,
    LostTooOften,
    MembersFailed,
    NoSecret,
    OutOfMemory,
    OutputsNotKept,
    PastCap,
    PastDeadline,
    PastWalltime,
    ReportUnusable,
    Stopping,
)
from spillover.model.reasons.money import NotRented, OverBudget, OverMaxCost, TooDear
from spillover.model.reasons.placing import (
    AlwaysRented,
    NotInTime,
    OnlyRented,
    QueueFull,
    RoomOwned,
    RoomPaid,
    RoomSoon,
    WaitOver,
)
from spillover.model.reasons.refusing import (
    AtLimit,
    BurstRefused,
    CannotRun,
    GangTooBig,
    GangUnsupported,
    NoSuchLevel,
    NoSuchNode,
    NotOffered,
    NotWhere,
    OverLimit,
    QueueAtLimit,
    QueueOverLimit,
    Tainted,
    TooBig,
    TooBigInside,
    TooLate,
    text_of_cluster,
)
from spillover.model.reasons.renting import (
    FreeSoon,
    KeptForGang,
    KeptOffSpot,
    MachineComing,
    NoOfferOpen,
    PoolAtMost,
    PoolIsPaused,
    PoolOutOfMoney,
)
from spillover.model.reasons.waiting import (
    AfterArrays,
    AfterJobs,
    AgentsOutdated,
    AllDrained,
    ArrayThrottled,
    BehindOthers,
    BeyondDepth,
    Fresh,
    Held,
    KeptFor,
    NoEmptyNode,
    NoRoom,
    NoRoomInside,
    NoRoomTogether,
    NotBefore,
    NotObserved,
    PolicyFailed,
    ReservationClosed,
    Reserved,
    WaitNotOver,
)

Reason: TypeAlias = (
    Held
    | AfterJobs
    | AfterArrays
    | NotBefore
    | ArrayThrottled
    | Fresh
    | NoRoom
    | NoRoomTogether
    | FreeSoon
    | KeptForGang
    | KeptOffSpot
    | MachineComing
    | NoOfferOpen
    | PoolAtMost
    | PoolIsPaused
    | PoolOutOfMoney
    | NoEmptyNode
    | NoRoomInside
    | AgentsOutdated
    | Reserved
    | ReservationClosed
    | BehindOthers
    | KeptFor
    | BeyondDepth
    | NotObserved
    | AllDrained
    | ClusterDown
    | ClusterDrained
    | NotConfigured
    | NoNodeReady
    | BackingOff
    | WaitNotOver
    | NotRented
    | PolicyFailed
    | OverMaxCost
    | OverBudget
    | TooDear
    | TooBig
    | NotOffered
    | NoSuchLevel
    | TooBigInside
    | GangTooBig
    | GangUnsupported
    | BurstRefused
    | NotWhere
    | CannotRun
    | NoSuchNode
    | Tainted
    | AtLimit
    | OverLimit
    | QueueAtLimit
    | QueueOverLimit
    | TooLate
    | RoomOwned
    | RoomSoon
    | WaitOver
    | NotInTime
    | RoomPaid
    | QueueFull
    | AlwaysRented
    | OnlyRented
    | Stopping
    | DependencyFailed
    | DependencySucceeded
    | CancelledBy
    | PastDeadline
    | PastWalltime
    | PastCap
    | LostTooOften
    | ClusterFailed
    | Exited
    | OutOfMemory
    | OutputsNotKept
    | ReportUnusable
    | CouldNotStart
    | NotStarting
    | AgentSilent
    | MembersFailed
    | NoSecret
)


def code_of(reason: Reason) -> str:
    """Return the code of a reason, for programs."""
    return _code(type(reason))


@cache
def _code(kind: type[Reason]) -> str:
    return str(kind.__struct_config__.tag)


__all__ = [
    "AfterArrays",
    "AfterJobs",
    "AgentSilent",
    "AgentsOutdated",
    "AllDrained",
    "AlwaysRented",
    "ArrayThrottled",
    "AtLimit",
    "BackingOff",
    "BehindOthers",
    "BeyondDepth",
    "BurstRefused",
    "CancelledBy",
    "CannotRun",
    "ClusterDown",
    "ClusterDrained",
    "ClusterFailed",
    "CouldNotStart",
    "DependencyFailed",
    "DependencySucceeded",
    "Exited",
    "FreeSoon",
    "Fresh",
    "GangTooBig",
    "GangUnsupported",
    "Held",
    "KeptFor",
    "KeptForGang",
    "KeptOffSpot",
    "LostTooOften",
    "MachineComing",
    "MembersFailed",
    "Never",
    "NoEmptyNode",
    "NoNodeReady",
    "NoOfferOpen",
    "NoRoom",
    "NoRoomInside",
    "NoRoomTogether",
    "NoSecret",
    "NoSuchLevel",
    "NoSuchNode",
    "NotBefore",
    "NotConfigured",
    "NotInTime",
    "NotNow",
    "NotObserved",
    "NotOffered",
    "NotRented",
    "NotStarting",
    "NotWhere",
    "OnlyRented",
    "OutOfMemory",
    "OutputsNotKept",
    "OverBudget",
    "OverLimit",
    "OverMaxCost",
    "PastCap",
    "PastDeadline",
    "PastWalltime",
    "PolicyFailed",
    "PoolAtMost",
    "PoolIsPaused",
    "PoolOutOfMoney",
    "QueueAtLimit",
    "QueueFull",
    "QueueOverLimit",
    "Reason",
    "ReportUnusable",
    "ReservationClosed",
    "Reserved",
    "RoomOwned",
    "RoomPaid",
    "RoomSoon",
    "Stopping",
    "Tainted",
    "TooBig",
    "TooBigInside",
    "TooDear",
    "TooLate",
    "WaitNotOver",
    "WaitOver",
    "code_of",
    "text_of_cluster",
]
