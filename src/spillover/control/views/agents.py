"""Shows one agent with what runs there."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import structs

from spillover.control.agents.administration import named_agent
from spillover.control.live.loop import Loop
from spillover.control.views.clusters import agent_views
from spillover.control.views.jobs import amounts, when
from spillover.core.records.jobs import Running
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.model.ids import split_task
from spillover.ports.cluster import Agents
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import AgentDetail, AgentTask

MOST_TASKS: Final = 1000


def agent_detail(loop: Loop, agents: Agents, state: State, name: str, project: str | None) -> AgentDetail:
    """Return an agent by its name or CLUSTER/NAME; of its tasks those of one project, if it is given."""
    node = named_agent(state, name)
    if not node.is_agent:
        message = f"{node.key} is a node of an external cluster, not an agent"
        raise CommandError(ErrorKind.UNKNOWN, message)
    (view,) = agent_views(loop, agents, state, [node.key])
    tasks = list(islice(_tasks(state, node, project), MOST_TASKS))
    return AgentDetail(
        **structs.asdict(view), tasks=tasks, tasks_in_all=len(node.held), token=node.token or None
    )


def _tasks(state: State, node: Node, project: str | None) -> Iterator[AgentTask]:
    """Yield the tasks that an agent holds, those with resources first."""
    for key in node.held:
        ref, _, rank = split_task(key)
        job = state.jobs[ref]
        if project not in {None, job.kind.project}:
            continue
        phase, own = job.phase, node.granted.get(key)
        yield AgentTask(
            job=job.id,
            rank=rank,
            name=job.name,
            user=job.user,
            project=job.kind.project,
            state=job.state,
            ahead=key in node.ahead,
            resources=amounts((node.holding if key in node.holding else node.ahead)[key]),
            started_at=when(phase.since) if isinstance(phase, Running) else None,
            cpus=own.cpus or None if own is not None else None,
            gpus=list(own.gpus) if own is not None else [],
        )
