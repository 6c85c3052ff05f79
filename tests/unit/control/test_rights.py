"""Who may change whose jobs, and which priorities they may give; whoever may not learns who may."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from spillover.model.access import Access
from spillover.model.tokens import TokenRole
from spillover.ports.callers import ADMIN, Caller
from spillover.ports.commands import CommandError, Commands, ErrorKind
from spillover.wire.api import Action, Patch
from tests.support.inside import form
from tests.support.served import Served, served

ADA = Caller(TokenRole.SUBMIT, "t1", user="ada")
BOB = Caller(TokenRole.SUBMIT, "t2", user="bob")
ANYBODY = Caller(TokenRole.SUBMIT, "t3")
KEEPER = Caller(TokenRole.MAINTAIN, "t4", user="kim")
KEEPER_OF_VISION = Caller(TokenRole.MAINTAIN, "t5", user="kim", project="vision")
KEEPER_ELSEWHERE = Caller(TokenRole.MAINTAIN, "t6", user="kim", project="nlp")


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


async def submitted(inside: Served, name: str = "train", caller: Caller = ADA, **fields: object) -> str:
    (job,) = await inside.commands.of(caller).submit([form(name, **fields)], caller.user or "ada")
    return job


def action(act: str, job: str) -> Action:
    return msgspec.convert({"act": act, "jobs": [job]}, Action)


async def acts(commands: Commands, job: str, user: str) -> set[str]:
    """Return the kinds of refusals of all changes of a waiting job; empty if all are allowed."""
    refusals: set[str] = set()
    for act in ("hold", "release", "set", "cancel"):
        try:
            if act == "set":
                await commands.change(job, Patch(5), user)
            else:
                await commands.act(action(act, job), user)
        except CommandError as error:
            refusals.add(error.kind)
    return refusals


async def test_the_owner_a_maintainer_and_an_admin_change_a_job_and_nobody_else(inside: Served) -> None:
    for caller, user, refusals in (
        (ADA, "ada", set()),
        (ANYBODY, "ada", set()),
        (KEEPER, "kim", set()),
        (ADMIN, "root", set()),
        (BOB, "bob", {ErrorKind.FORBIDDEN}),
        (ANYBODY, "bob", {ErrorKind.FORBIDDEN}),
        (Caller(TokenRole.READ, "t9", user="ada"), "ada", {ErrorKind.FORBIDDEN}),
    ):
        job = await submitted(inside)
        assert await acts(inside.commands.of(caller), job, user) == refusals, caller


async def test_a_maintainer_of_one_project_changes_its_jobs_only(inside: Served) -> None:
    vision = Caller(TokenRole.SUBMIT, "t7", user="ada", project="vision")
    job = await submitted(inside, caller=vision)
    assert await acts(inside.commands.of(KEEPER_ELSEWHERE), job, "kim") == {ErrorKind.UNKNOWN}
    assert await acts(inside.commands.of(KEEPER_OF_VISION), job, "kim") == set()


async def test_maintainers_in_the_configuration_need_a_token_that_names_them(inside: Served) -> None:
    inside.access.access = Access(maintainers={"default": ("bob",), "vision": ("eve",)})
    job = await submitted(inside)
    assert await acts(inside.commands.of(ANYBODY), job, "bob") == {ErrorKind.FORBIDDEN}
    assert await acts(inside.commands.of(Caller(TokenRole.SUBMIT, "t8", user="eve")), job, "eve") == {
        ErrorKind.FORBIDDEN
    }
    assert await acts(inside.commands.of(BOB), job, "bob") == set()


async def test_the_old_rule_lets_everybody_of_a_project_change_its_jobs(inside: Served) -> None:
    inside.access.access = Access("project")
    assert await acts(inside.commands.of(BOB), await submitted(inside), "bob") == set()


async def test_a_refusal_names_the_job_its_owner_and_who_may(inside: Served) -> None:
    inside.access.access = Access(maintainers={"default": ("kim", "lee")})
    job = await submitted(inside, "sweep", array="0-9")
    with pytest.raises(CommandError) as refused:
        await inside.commands.of(BOB).act(Action("cancel", [f"{job}.3"]), "bob")
    assert refused.value.message == (
        f"{job}.3 (sweep) belongs to ada, and you are bob; "
        "only ada, a maintainer of project default (kim, lee) or an admin may cancel it"
    )


async def test_one_foreign_job_among_own_ones_changes_nothing(inside: Served) -> None:
    own, foreign = await submitted(inside, "own", BOB), await submitted(inside)
    with pytest.raises(CommandError):
        await inside.commands.of(BOB).act(Action("hold", [own, foreign]), "bob")
    assert {job.state for job in inside.jobs.values()} == {"QUEUED"}


async def test_each_role_gives_priorities_up_to_its_own(inside: Served) -> None:
    caps = {TokenRole.SUBMIT: 100, TokenRole.MAINTAIN: 500}
    inside.access.access = Access(maintainers={"default": ("bob",)}, max_priority=caps)
    for caller, most in ((ADA, 100), (BOB, 500), (KEEPER, 500), (ADMIN, 1_000_000)):
        commands, user = inside.commands.of(caller), caller.user or "root"
        job = await submitted(inside, caller=caller, priority=most)
        await commands.change(job, Patch(7), user)
        await commands.change(job, Patch(most), user)
        if caller is ADMIN:
            continue
        for tried in (
            commands.change(job, Patch(most + 1), user),
            commands.submit([form("x"), form("y", priority=most + 1)], user),
            commands.forecast([form("x"), form("y", priority=most + 1)], user),
        ):
            with pytest.raises(CommandError) as refused:
                await tried
            assert refused.value.kind is ErrorKind.FORBIDDEN
    assert len(inside.jobs) == 4


async def test_a_priority_that_is_too_high_is_refused_with_who_may_give_it(inside: Served) -> None:
    caps = {TokenRole.SUBMIT: 100, TokenRole.MAINTAIN: 500}
    inside.access.access = Access(max_priority=caps)
    for caller, priority, told in (
        (ADA, 101, "role submit may give, which is 100; ask a maintainer of project default or an admin"),
        (ADA, 501, "role submit may give, which is 100; ask an admin"),
        (KEEPER, 501, "role maintain may give, which is 500; ask an admin"),
    ):
        with pytest.raises(CommandError) as refused:
            await inside.commands.of(caller).submit([form("x", priority=priority)], "ada")
        (problem,) = refused.value.problems
        assert problem.path == "jobs[0].spec.priority"
        assert problem.message.startswith(f"x: priority {priority} is more than {told}, or write ")
