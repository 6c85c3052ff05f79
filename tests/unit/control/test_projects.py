"""To whoever is let in for one project there are no jobs but those of the project."""

from typing import Any

import msgspec
import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.requests.lookup import Lookup
from spillover.control.requests.projects import OwnHistory
from spillover.control.requests.tokens import Tokens
from spillover.core.events import TasksBound, Usage
from spillover.core.proposals import Outcome, Result, Started, StartEpoch
from spillover.core.records.jobs import Placed, Running
from spillover.forms.jobs.reading import JobForm, read_job
from spillover.model.cluster import ClusterSpec, Role, pool_price
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import Offer, Pool
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY, SECOND
from spillover.ports.callers import ADMIN, Caller, Stranger
from spillover.ports.commands import CommandError, ErrorKind, JobQuery, Span
from spillover.testing.world import OWNED
from spillover.wire.api import Action, EventView, Patch, PolicyPatch, TokenRequest
from tests.support.inside import Inside

VISION = Caller(TokenRole.SUBMIT, "t1", project="vision")
OWN = "the-token-of-the-server"


def of(name: str, project: str | None = None, **spec: object) -> JobForm:
    metadata = {"name": name} | ({"project": project} if project is not None else {})
    doc = {"apiVersion": "spillover/v1", "kind": "Job", "metadata": metadata, "spec": {"run": "true", **spec}}
    return read_job(doc)


@pytest.fixture
async def tokens(control: Inside) -> Tokens:
    return Tokens(OWN, control.loop)


@pytest.fixture
async def everybody(control: Inside, tokens: Tokens) -> LiveCommands:
    store = control.store
    parts = Parts(
        control.loop,
        store.journal,
        store.archive,
        Hub(),
        control.specs,
        control.lookup,
        control.submitting,
        tokens=tokens,
    )
    return LiveCommands(parts)


async def register(control: Inside, cluster: str = "onprem") -> None:
    intro = Introduction(ClusterName(cluster), NodeName(f"{cluster}-1"), Resources(8000), (), {}, 0, (), 0)
    await AgentRequests(control.loop, Hub(), DAY).register(intro)


async def run(control: Inside, job: str) -> None:
    """Let a placed job run for a second and end."""
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed)
    await control.propose(Started(found.phase.key, found.lease, 0))
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Running)
    result = Result(found.phase.key, found.lease, Outcome.EXITED, 0, None, Usage(SECOND), 0)
    await control.propose(result)


async def unknown(call: object) -> None:
    with pytest.raises(CommandError) as raised:
        await call  # type: ignore[misc]
    assert raised.value.kind is ErrorKind.UNKNOWN


async def history(commands: LiveCommands) -> list[EventView]:
    return [event async for event in commands.events(0, follow=False, job=None)]


async def test_jobs_of_other_projects_are_unknown_by_id_prefix_and_name(
    control: Inside, everybody: LiveCommands
) -> None:
    (other,) = await everybody.submit([of("train", "nlp")], "ada")
    mine = everybody.of(VISION)
    for ref in (other, other[:8], "train"):
        await unknown(mine.job(ref))
        await unknown(mine.why(ref))
        await unknown(mine.wait(ref, 0))
        await unknown(mine.change(ref, Patch(1), "eve"))
        await unknown(mine.act(Action("cancel", [ref]), "eve"))
        await unknown(mine.output(ref, attempt=None, task=0, stderr=False, offset=0, follow=False))
        with pytest.raises(CommandError):
            [event async for event in mine.events(0, follow=False, job=ref)]
    assert control.loop.state.jobs[JobId(other)].state == "QUEUED"


async def test_of_jobs_that_a_cluster_moved_together_only_those_of_the_project_are_told(
    everybody: LiveCommands, control: Inside
) -> None:
    own, other = map(JobId, await everybody.submit([of("a", "vision"), of("b", "nlp")], "ada"))
    k1 = NodeName("k1")
    moved = TasksBound(ClusterName("lab"), 1, (other, own), ((k1,), (k1, k1)), (other, own))
    part = await OwnHistory(Lookup(control.loop, control.store.archive, "vision")).part(moved)
    assert part == TasksBound(ClusterName("lab"), 1, (own,), ((k1, k1),), (own,))


async def test_a_name_that_another_project_has_too_is_not_ambiguous(
    control: Inside, everybody: LiveCommands
) -> None:
    mine = everybody.of(VISION)
    (own,) = await mine.submit([of("train", "vision")], "eve")
    await everybody.submit([of("train", "nlp")], "ada")
    assert (await mine.job("train")).id == own
    with pytest.raises(CommandError) as raised:
        await everybody.job("train")
    assert raised.value.kind is ErrorKind.AMBIGUOUS


async def test_archived_jobs_of_other_projects_are_unknown_too(
    control: Inside, everybody: LiveCommands
) -> None:
    await register(control)
    (own,) = await everybody.submit([of("a", "vision")], "ada")
    (other,) = await everybody.submit([of("b", "nlp")], "ada")
    for job in (own, other):
        await run(control, job)
    await control.archive()
    assert not control.loop.state.jobs
    mine = everybody.of(VISION)
    assert (await mine.job("a")).id == (await mine.job(own[:8])).id == own
    for ref in (other, other[:8], "b"):
        await unknown(mine.job(ref))
    assert [job.id for job in (await mine.jobs(JobQuery())).jobs] == [own]
    assert [job.id async for job in mine.past(Span())] == [own]


async def test_members_of_an_array_are_as_hidden_as_the_array(
    control: Inside, everybody: LiveCommands
) -> None:
    (array,) = await everybody.submit([of("sweep", "nlp", array="1-3")], "ada")
    mine = everybody.of(VISION)
    for ref in (f"{array}.2", "sweep.2"):
        await unknown(mine.job(ref))


async def test_a_submission_is_for_the_project_of_the_token_and_for_no_other(
    control: Inside, everybody: LiveCommands
) -> None:
    mine = everybody.of(VISION)
    (job,) = await mine.submit([of("plain")], "eve")
    assert control.loop.state.jobs[JobId(job)].kind.project == "vision"
    for attempt in (mine.submit, mine.forecast):
        with pytest.raises(CommandError) as raised:
            await attempt([of("a", "vision"), of("b", "nlp")], "eve")
        assert raised.value.kind is ErrorKind.FORBIDDEN
        assert raised.value.message == ("b: your token is for project 'vision'; it cannot submit to 'nlp'")
        assert [each.path for each in raised.value.problems] == ["jobs[1].metadata.project"]
    assert list(control.loop.state.jobs) == [job]


async def test_nothing_can_be_run_after_a_job_of_another_project(
    control: Inside, everybody: LiveCommands
) -> None:
    (other,) = await everybody.submit([of("first", "nlp")], "ada")
    mine = everybody.of(VISION)
    with pytest.raises(CommandError) as raised:
        await mine.submit([of("second", after=[{"job": other}])], "eve")
    assert f"there is no job '{other}'" in raised.value.message


async def test_lists_hold_jobs_of_the_project_alone(control: Inside, everybody: LiveCommands) -> None:
    (own,) = await everybody.submit([of("a", "vision")], "ada")
    await everybody.submit([of("b", "nlp")], "ada")
    mine = everybody.of(VISION)
    assert [job.id for job in (await mine.jobs(JobQuery())).jobs] == [own]
    assert [job.id for job in (await mine.jobs(JobQuery(project="vision"))).jobs] == [own]
    assert (await mine.jobs(JobQuery(project="nlp"))).jobs == []
    shown = await mine.overview(10, 10, 10)
    assert [job.id for job in shown.queued] == [own]


async def test_history_tells_of_jobs_of_the_project_alone(control: Inside, everybody: LiveCommands) -> None:
    await register(control)
    own, array = await everybody.submit([of("a", "vision"), of("c", "vision", array="1-2")], "ada")
    (other,) = await everybody.submit([of("b", "nlp")], "ada")
    blocked = await everybody.submit(
        [of("w1", "vision", resources={"cpu": 64}), of("w2", "nlp", resources={"cpu": 64})], "ada"
    )
    for job in (own, other):
        await run(control, job)
    await control.archive()
    mine = await history(everybody.of(VISION))
    told = [str(event) for event in mine]
    assert mine
    assert {event.job.partition(".")[0] for event in mine if event.job} == {own, array, blocked[0]}
    for hidden in (other, blocked[1]):
        assert not [line for line in told if hidden in line]
        assert [event for event in await history(everybody) if hidden in str(event)]
    assert not {event.type for event in mine} & {"agent_registered", "clusters_configured", "epoch_started"}
    assert {"job_submitted", "jobs_admitted", "job_placed", "job_ended", "jobs_archived"} <= {
        event.type for event in mine
    }


async def test_costs_are_those_of_the_project(control: Inside, everybody: LiveCommands) -> None:
    await register(control, "cloud")
    (own,) = await everybody.submit([of("a", "vision", burst="always")], "ada")
    (other,) = await everybody.submit([of("b", "nlp", burst="always")], "ada")
    for archived in (False, True):
        if archived:
            await control.archive()
        else:
            await run(control, own)
            await run(control, other)
        all_of_it = await everybody.costs("user", None)
        mine = await everybody.of(VISION).costs("user", None)
        assert mine.total.jobs == 1
        assert mine.total.cost == pytest.approx(all_of_it.total.cost / 2)
        by_project = await everybody.of(VISION).costs("project", None)
        assert [row.key for row in by_project.rows] == ["vision"]


async def test_reservations_are_those_of_the_project(control: Inside, everybody: LiveCommands) -> None:
    await everybody.set_policy(PolicyPatch("backfill=conservative,wait=never"), "ada")
    await register(control)
    whole: dict[str, Any] = {"resources": {"cpu": 8}, "estimate": "1h"}
    jobs = [of("running", **whole), of("other", **whole), of("own", "vision", **whole)]
    await everybody.submit(jobs, "ada")
    assert [each.name for each in await everybody.reservations()] == ["other", "own"]
    assert [each.name for each in await everybody.of(VISION).reservations()] == ["own"]


async def test_who_has_no_limit_sees_all(control: Inside, everybody: LiveCommands) -> None:
    assert everybody.of(ADMIN) is everybody


# --- tokens


async def test_a_token_is_shown_told_apart_and_revoked(control: Inside, tokens: Tokens) -> None:
    made = await tokens.create(TokenRequest("submit", project="vision", user="eve", note="ci"), "ada")
    caller = tokens.caller(made.token)
    assert caller == Caller(TokenRole.SUBMIT, made.id, "eve", "vision")
    assert tokens.is_valid(made.id)
    await tokens.revoke(made.id, "ada")
    with pytest.raises(Stranger, match=f"token {made.id} was revoked"):
        tokens.caller(made.token)
    assert not tokens.is_valid(made.id)
    (view,) = await tokens.all()
    assert (view.state, view.revoked_by, view.note) == ("revoked", "ada", "ci")
    assert view.used_at is not None


async def test_a_token_expires(control: Inside, tokens: Tokens) -> None:
    made = await tokens.create(TokenRequest("agent", expires_s=60), "ada")
    assert tokens.caller(made.token).role is TokenRole.AGENT
    control.clock.pass_by(61)
    await control.submit("step")
    with pytest.raises(Stranger, match="has expired"):
        tokens.caller(made.token)
    assert [view.state for view in await tokens.all()] == ["expired"]


async def test_what_is_no_token_lets_nobody_in_and_is_not_repeated(control: Inside, tokens: Tokens) -> None:
    made = await tokens.create(TokenRequest("admin"), "ada")
    prefix, name, secret = made.token.split("_", 2)
    wrong = [
        "",
        "x",
        OWN + "x",
        f"{prefix}_{name}_",
        f"{prefix}_{name}_{secret}x",
        f"{prefix}_other_{secret}",
        "é",
    ]
    for text in wrong:
        with pytest.raises(Stranger) as raised:
            tokens.caller(text)
        assert str(raised.value) == "the token is invalid"
    assert tokens.caller(OWN) == ADMIN


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (TokenRequest("submit", project="a b"), "project: 'a b' is not a name"),
        (TokenRequest("agent", cluster="moon"), "there is no cluster 'moon'; known clusters: onprem, cloud"),
        (TokenRequest("admin", note="a\nb"), "note: has unprintable characters"),
        (TokenRequest("agent", project="p"), "cannot be limited to a project"),
    ],
)
async def test_a_token_that_cannot_be_is_refused(
    control: Inside, tokens: Tokens, request_: TokenRequest, says: str
) -> None:
    with pytest.raises(CommandError) as raised:
        await tokens.create(request_, "ada")
    assert raised.value.kind is ErrorKind.INVALID
    assert says in raised.value.message


async def test_a_dependency_of_another_project_is_told_without_its_name(
    control: Inside, everybody: LiveCommands
) -> None:
    await register(control)
    (other,) = await everybody.submit([of("secret", "nlp", resources={"cpu": 100})], "ada")
    (own,) = await everybody.submit([of("small", "vision", after=[other])], "ada")
    assert f"waits for secret ({other}) to succeed" in (await everybody.why(own)).sentence
    assert f"waits for {other} to succeed" in (await everybody.of(VISION).why(own)).sentence
    assert b"secret" not in msgspec.json.encode(await everybody.of(VISION).why(own))


async def test_no_reason_names_a_job_of_another_project(control: Inside, everybody: LiveCommands) -> None:
    await register(control)
    await everybody.set_policy(PolicyPatch("backfill=strict,wait=never"), "ada")
    (other,) = await everybody.submit([of("large", "nlp", resources={"cpu": 100})], "ada")
    mine = everybody.of(VISION)
    (own,) = await mine.submit([of("small", "vision")], "eve")
    assert other in (await everybody.why(own)).sentence
    for answer in (
        await mine.why(own),
        await mine.job(own),
        await mine.wait(own, 0),
        await mine.jobs(JobQuery()),
        await mine.overview(10, 10, 10),
        await mine.forecast([of("next")], "eve"),
    ):
        text = msgspec.json.encode(answer).decode()
        assert other not in text
        assert "a job of another project ahead of it does not fit yet" in text
    (second,) = await mine.submit([of("large", "vision", resources={"cpu": 100})], "eve")
    await everybody.act(Action("cancel", [other]), "ada")
    assert second not in (await mine.why(own)).sentence


@pytest.mark.parametrize("archived", [False, True])
async def test_each_project_has_keys_of_its_own(
    control: Inside, everybody: LiveCommands, archived: bool
) -> None:
    await register(control)
    (other,) = await everybody.submit([of("a", "nlp", key="k")], "ada")
    if archived:
        await run(control, other)
        await control.archive()
        assert not control.loop.state.jobs
    mine = everybody.of(VISION)
    (own,) = await mine.submit([of("a", "vision", key="k")], "eve")
    assert own != other
    assert await mine.submit([of("a", "vision", key="k")], "eve") == (own,)
    assert await everybody.submit([of("a", "nlp", key="k"), of("a", "vision", key="k")], "ada") == (
        other,
        own,
    )
    with pytest.raises(CommandError, match=rf"was used for another job, {other}; use a new key"):
        await everybody.submit([of("b", "nlp", key="k")], "ada")


async def test_what_machines_cost_that_all_projects_share_is_not_for_a_token_of_one(
    everybody: LiveCommands,
) -> None:
    with pytest.raises(CommandError, match="limited to project 'vision'") as raised:
        await everybody.of(VISION).machine_costs("pool", None)
    assert raised.value.kind is ErrorKind.FORBIDDEN
    assert (await everybody.machine_costs("pool", None)).rows == []


async def test_machines_do_not_name_jobs_of_other_projects(control: Inside, everybody: LiveCommands) -> None:
    pool = Pool("process", (Offer("small", Resources(4000, 2**34), 400_000),), max=4)
    cloud = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, pool_price(pool), pool=pool)
    zero = PolicySet(wait=Choice("zero"))
    await control.propose(StartEpoch(control.loop.epoch, (OWNED, cloud), zero, 0))
    asked = {"burst": "always", "resources": {"cpu": 4}}
    (theirs,) = await everybody.submit([of("theirs", "nlp", **asked)], "ada")
    (own,) = await everybody.submit([of("own", "vision", **asked)], "ada")

    async def named(commands: LiveCommands) -> list[str | None]:
        return [each.job for shown in await commands.pools() for each in shown.machines]

    assert await named(everybody) == [theirs, own]
    assert await named(everybody.of(VISION)) == ["a job of another project", own]
