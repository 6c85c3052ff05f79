"""A state from its records: what a checkpoint kept, with the indexes that are derived from it."""

from collections.abc import Iterable

from spillover.core.appliers.queue import live_of, weight
from spillover.core.clusters import Condition
from spillover.core.facts import Facts
from spillover.core.jobs import NO_EXTRA, Job, Kind, Queued, Running
from spillover.core.nodes import Node
from spillover.core.policy_book import PolicyBook
from spillover.core.purses import Purse
from spillover.core.samples import Sample
from spillover.core.sharing import KeptUsing
from spillover.core.state import State
from spillover.core.tally import Tally
from spillover.core.transitions import TERMINAL
from spillover.model.budget import Caps
from spillover.model.ids import JobId, split_member
from spillover.model.tokens import Token


def rebuild(
    records: Iterable[
        tuple[str, Facts | Job | Node | Condition | Purse | PolicyBook | Sample | KeptUsing | Token]
    ],
) -> State:
    """The state that these records describe: jobs in the order of their submission, nodes in that of their joining."""
    state = State()
    jobs: list[Job] = []
    nodes: list[Node] = []
    samples: list[Sample] = []
    tokens: list[Token] = []
    for _, record in records:
        match record:
            case Facts():
                state.facts = record
                record.tally, record.sums = Tally(*[int(each, 16) for each in record.sums]), ()
                state.clusters = {spec.name: spec for spec in record.clusters}
                state.caps = Caps(record.budgets)
            case Sample():
                samples.append(record)
            case KeptUsing():
                state.usage[record.project] = record.using
                state.holders += record.rate > 0
            case Condition():
                state.conditions[record.cluster] = record
            case Purse():
                state.purses[record.key] = record
            case PolicyBook():
                state.policies = record
            case Token():
                tokens.append(record)
            case Node():
                nodes.append(record)
            case Job():
                jobs.append(record)
    for sample in sorted(samples, key=lambda sample: int(sample.key)):
        state.history[sample.about] = state.samples[sample.key] = sample
    state.tokens = {token.id: token for token in sorted(tokens, key=lambda each: (each.created, each.id))}
    nodes.sort(key=lambda node: (node.number, node.key))
    state.nodes = {node.key: node for node in nodes}
    state.agents = {node.key: node for node in nodes if node.is_agent}
    state.lost = sum(node.status == "lost" for node in state.agents.values())
    state.registered = {node.incarnation: key for key, node in state.agents.items()}
    jobs.sort(key=lambda job: (job.number, job.id))
    for job in jobs:
        _index(state, job)
    return state


def _index(state: State, job: Job) -> None:
    """Take a job into the state, sharing what it has in common with others."""
    kind = job.kind
    job.kind = state.share(Kind(kind.shape, state.share(kind.queue), state.share(kind.project), kind.shunned))
    job.terms = state.share(job.terms)
    job.user = state.share(job.user)
    job.name = state.share(job.name)
    if job.extra == NO_EXTRA:
        job.extra = NO_EXTRA
    state.jobs[JobId(job.id)] = job
    if (count := live_of(job)) > 0:
        state.count_live(job.kind.project, count)
    if type(job.phase) is Queued:
        state.queued += weight(job)
    elif type(job.phase) is Running:
        state.running += 1
    if job.extra.key is not None:
        state.keys[job.extra.key] = job.id
    for wanted in job.extra.after:
        state.waiters.setdefault(wanted.job, {})[job.id] = None
    member = split_member(job.id)
    if member is not None and job.state not in TERMINAL:
        state.members.setdefault(member[0], {})[job.id] = None
