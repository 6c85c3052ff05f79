"""Who waits for owned capacity, in order, as a policy that looks ahead sees it."""

import heapq
from collections.abc import Mapping

from spillover.core.jobs import Queued
from spillover.deciding.board import Board
from spillover.deciding.lookahead import Waiter
from spillover.model.ids import JobId
from spillover.model.job import Burst


def in_order_of(board: Board, admitted: Mapping[JobId, int], most: int) -> list[Waiter]:
    """Jobs that waited before, and those that a cycle has just admitted until then; of each the first ones."""
    jobs = board.state.jobs
    newcomers = [
        (board.entry(jobs[each]), board.waiter(jobs[each], latest))
        for each, latest in admitted.items()
        if type(jobs[each].phase) is Queued and jobs[each].kind.shape.burst is not Burst.ALWAYS
    ]
    if (ranking := board.ranking) is None:
        waiting = sorted([*board.in_line[:most], *heapq.nsmallest(most, newcomers)])
    else:
        waiting = [
            (ranking.ranked(entry, jobs[waiter.job].kind.project), waiter)
            for entry, waiter in (*board.in_line, *newcomers)
        ]
        waiting = heapq.nsmallest(2 * most, waiting)
    return [waiter for _, waiter in waiting]
