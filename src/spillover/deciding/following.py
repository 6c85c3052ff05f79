"""What the board does about each event, so that it need not be built anew."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from spillover.core.events import (
    ClockJumped,
    ClusterChanged,
    CostHeld,
    EpochStarted,
    GangPlaced,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    JobsAdmitted,
    JobStarted,
    JobSubmitted,
    LeaseMoved,
    MemberPlaced,
    MembersDropped,
    ShunEnded,
    TasksBound,
    WaitsExpired,
)
from spillover.core.jobs import NO_EXTRA, Ended, Queued
from spillover.deciding.board import Board
from spillover.model.ids import member_id


def _arrived(board: Board, event: JobReleased | JobReprioritised) -> None:
    board.enter(board.state.jobs[event.job])


def _requeued(board: Board, event: JobRequeued) -> None:
    job = board.state.jobs[event.job]
    board.enter(job)
    if event.shunned is not None:
        board.alarms.set(job)
    if board.limited:
        board.move_out(event.job)
    if board.ends is not None:
        board.ends.forget(event.job)


def _shun_ended(board: Board, event: ShunEnded) -> None:
    job = board.state.jobs[event.job]
    shunned = tuple(sorted((*job.kind.shunned, event.cluster)))
    board.alarms.set(job)
    board.change_lane(job, replace(job.kind, shunned=shunned))


def _submitted(board: Board, event: JobSubmitted) -> None:
    job = board.state.jobs[event.job]
    board.enter(job)
    if job.extra is not NO_EXTRA:
        board.alarms.set(job)


def _left(board: Board, event: JobHeld) -> None:
    board.leave(board.state.jobs[event.job])


def _placed(board: Board, event: JobPlaced | GangPlaced) -> None:
    job = board.state.jobs[event.job]
    board.leave(job)
    if board.limited:
        board.move_in(job)
    if board.brings_back:
        board.alarms.set(job)
    if board.ends is not None:
        board.ends.set(job)


def _ended(board: Board, event: JobEnded) -> None:
    job = board.state.jobs[event.job]
    if board.ends is not None:
        board.ends.forget(event.job)
    if board.limited:
        board.move_out(event.job)
    if type(job.phase) is not Ended or job.phase.cluster is None:  # one that ran left the queue long ago
        board.leave(job)


def _members_left(board: Board, event: MemberPlaced | MembersDropped) -> None:
    board.leave(board.state.jobs[event.array])


def _member_placed(board: Board, event: MemberPlaced) -> None:
    _members_left(board, event)
    member = board.state.jobs[member_id(event.array, event.index)]
    if board.limited:
        board.move_in(member)
    board.alarms.set(member)
    if board.ends is not None:
        board.ends.set(member)
    if board.is_ahead(member):
        board.wait(member)


def _started(board: Board, event: JobStarted) -> None:
    job = board.state.jobs[event.job]
    board.alarms.set(job)
    if board.ends is not None:
        board.ends.set(job)
        board.gained = board.gained or board.passed  # it ends later than was expected when it was placed


def _moved(board: Board, event: LeaseMoved) -> None:
    job = board.state.jobs[event.job]
    if board.ends is not None:
        board.ends.set(job)
    if job.due is None and board.is_ahead(job):
        board.wait(job)


def _bound(board: Board, event: TasksBound) -> None:
    if board.ends is None:
        return
    board.look_at_what_moved()  # they may be on nodes that were seen in the same step
    for job in event.jobs:
        board.ends.set(board.state.jobs[job])
    board.gained = board.gained or board.passed  # room that somebody waits for comes to be elsewhere


def _opened(board: Board, event: ClusterChanged | EpochStarted) -> None:
    del event
    board.open_clusters()


def _jumped(board: Board, event: ClockJumped) -> None:
    del event
    if board.ends is not None:
        state = board.state
        placed = (each for node in state.nodes.values() for each in (*node.holding, *node.ahead))
        for job in dict.fromkeys(placed):
            board.ends.set(state.jobs[job])


def _admitted(board: Board, event: JobsAdmitted) -> None:
    for each in event.jobs:
        job = board.state.jobs[each]
        board.fresh.pop(each, None)
        if job.due is None:
            board.wait(job)
        if board.line_up is not None and type(job.phase) is Queued:
            board.line_up.keep(job)


def _expired(board: Board, event: WaitsExpired) -> None:
    for each in event.jobs:
        job = board.state.jobs[each]
        if not job.partly_due:
            board.patient.pop(each, None)
        if type(job.phase) is Queued:
            board.due.push(board.lane_of(job), board.entry(job))
            if board.line_up is not None:
                board.line_up.keep(job)


def _held(board: Board, event: CostHeld) -> None:
    board.holders.note(board.state.jobs[event.job])


FOLLOWERS: Final[dict[type, Callable[[Board, Any], None]]] = {
    JobSubmitted: _submitted,
    JobReleased: _arrived,
    JobRequeued: _requeued,
    ShunEnded: _shun_ended,
    JobReprioritised: _arrived,
    JobPlaced: _placed,
    JobHeld: _left,
    JobEnded: _ended,
    GangPlaced: _placed,
    MemberPlaced: _member_placed,
    MembersDropped: _members_left,
    JobStarted: _started,
    LeaseMoved: _moved,
    TasksBound: _bound,
    ClusterChanged: _opened,
    EpochStarted: _opened,
    CostHeld: _held,
    JobsAdmitted: _admitted,
    ClockJumped: _jumped,
    WaitsExpired: _expired,
}
