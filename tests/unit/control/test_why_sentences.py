import pytest
from msgspec import structs

from spillover.cli.printing.listing import place
from spillover.control.controllers.archiving import finished_of
from spillover.control.requests.dry_run import forecasts
from spillover.control.views.jobs import ended_sentence, finished_view, finished_why, job_view, why_view
from spillover.core.proposals import Act, AgentGone, Drain, NewJob, Outcome, Resume, Submit
from spillover.deciding.whatif import Snapshot, Trial, try_jobs
from spillover.forms.jobs.likeness import command_of
from spillover.forms.jobs.reading import JobForm
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import ClusterHealth, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Argv, Burst, On
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import ClusterDown, NotConfigured, Reason, TooBig
from spillover.model.resources import Resources
from spillover.model.units import MONEY, SECOND, format_time
from spillover.model.where import Where
from spillover.policies.loading import load
from spillover.stores.rows import finished_from, finished_row
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from spillover.wire.api import Forecast


@pytest.fixture
def world() -> World:
    """One owned CPU that takes prefetched work; a job waits ten seconds."""
    world = World(load, PolicySet(wait=Choice("constant", {"wait": 10 * SECOND})))
    world.agent("n1", queue=8)
    return world


def told(world: World, job: str) -> str:
    return why_view(world.engine, world.job(job), world.now).sentence


def tried(world: World, *new: NewJob) -> list[Forecast]:
    """What a dry run says of these jobs."""
    trial = try_jobs(Snapshot(world.engine), world.now, Submit(new, "ada"))
    assert isinstance(trial, Trial)
    forms = [JobForm(each.spec) for each in new]
    return forecasts([each.job for each in new], forms, trial).jobs


def test_a_job_that_runs_says_for_how_long(world: World) -> None:
    world.submit(a_job("one"))
    assert told(world, "one") == "one was placed on onprem/n1 0s ago: owned capacity had room"
    world.start("one")
    world.wait(seconds=3)
    assert told(world, "one") == "one has run on onprem/n1 for 3s: owned capacity had room"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (ClusterDown(OWNED.name, ClusterHealth.FAILED, 0, "no answer"), "onprem has failed: no answer"),
        (NotConfigured(OWNED.name), "it is on onprem, which is no longer configured;"),
    ],
)
def test_a_job_that_is_out_of_sight_says_why_in_a_sentence(world: World, reason: Reason, said: str) -> None:
    world.submit(a_job("one"))
    world.start("one")
    text = why_view(world.engine, world.job("one"), world.now, cluster_reason=lambda _: reason).sentence
    assert text.startswith(f"one has run on onprem/n1 for 0s: owned capacity had room; {said}")


def test_the_wait_of_a_job_does_not_count_the_time_of_earlier_attempts(world: World) -> None:
    world.submit(a_job("one"), a_job("two"))
    world.start("one")
    world.wait(seconds=4)
    world.finish("one", ran=4.0)
    world.start("two")
    world.wait(seconds=100)
    world.propose(Drain(ClusterName("onprem"), NodeName("n1"), "ada"))
    world.act(Act.REQUEUE, "two")
    world.finish("two", ran=100.0, outcome=Outcome.STOPPED)
    came = world.now
    world.wait(seconds=3)
    view = why_view(world.engine, world.job("two"), world.now)
    assert (view.waited_s, view.waiting_since) == (7.0, format_time(came))
    assert "two has waited 7s: " in view.sentence


def test_a_job_says_which_earlier_runs_tell_how_long_it_takes(world: World) -> None:
    for number, seconds in enumerate([720] * 9 + [4000]):
        run = f"run-{number}"
        world.propose(Submit((structs.replace(a_job("train").build(), job=JobId(run)),), "ann"))
        world.start(run)
        world.finish(run, ran=seconds)
    limit = 7200 * SECOND
    for job in (a_job("train"), a_job("train").cpus(0.5).terms(walltime=limit), a_job("new")):
        told = job.build()
        world.propose(
            Submit((structs.replace(told, job=JobId(f"{told.spec.name}{told.spec.terms.walltime}")),), "ann")
        )
    again = why_view(world.engine, world.job("trainNone"), world.now)
    assert (again.estimate_s, again.estimate_from) == (720, "history")
    assert again.estimate_because == "9 of 10 earlier runs of this very job by ann took no longer"
    world.start("trainNone")
    world.finish("trainNone", ran=60)
    row = finished_of(world.job("trainNone"))
    assert row is not None
    for ended in (
        job_view(world.engine, world.job("trainNone")),
        finished_view(row, 0),
        finished_why(finished_from(finished_row(row)), 0),
    ):
        assert (ended.estimate_s, ended.estimate_because) == (720, again.estimate_because), (
            "also when it ended"
        )
    limited = job_view(world.engine, world.job(f"train{limit}"))
    assert (limited.estimate_s, limited.estimate_from) == (7200, "walltime")
    assert limited.estimate_because == "3 of 3 earlier runs of this very job by ann took no longer than 12m"
    new = job_view(world.engine, world.job("newNone"))
    assert (new.estimate_s, new.estimate_from) == (3600, "history"), "no shorter than what is unknown"
    assert new.estimate_because == "3 of 3 other jobs of ann with its resources took no longer"


def test_a_job_that_nobody_named_says_what_other_runs_of_its_program_tell(world: World) -> None:
    for run in ("one", "two", "three", "four"):
        told = structs.replace(a_job("sleep").build(), job=JobId(run), command=run.encode(), named=False)
        world.propose(Submit((told,), "ann"))
        if run != "four":
            world.start(run)
            world.finish(run, ran=7200)
    view = job_view(world.engine, world.job("four"))
    assert (view.estimate_s, view.estimate_because) == (
        7200,
        "3 of 3 other runs of sleep by ann took no longer",
    )


def test_a_job_says_when_only_other_arguments_of_its_program_ran_before(world: World) -> None:
    for run in ("one", "two", "three", "four"):
        job = a_job("train").build()
        spec = structs.replace(job.spec, work=Argv(("python", "train.py", run)))
        new = structs.replace(job, job=JobId(run), spec=spec, command=command_of(spec))
        world.propose(Submit((new,), "ann"))
        if run != "four":
            world.start(run)
            world.finish(run, ran=60)
    view = job_view(world.engine, world.job("four"))
    told = "3 of 3 runs of train by ann with other arguments took no longer"
    assert (view.estimate_s, view.estimate_because) == (60, told)


def test_a_job_that_runs_says_when_it_is_expected_to_end(world: World) -> None:
    world.submit(a_job("one").terms(estimate=60 * SECOND))
    world.start("one")
    view = why_view(world.engine, world.job("one"), world.now)
    assert (view.ends_at, view.estimate_from) == (format_time(world.now + 60 * SECOND), "estimate")
    late = world.now + 600 * SECOND
    assert why_view(world.engine, world.job("one"), late).ends_at == format_time(late + 60 * SECOND)


def test_a_job_ahead_of_room_does_not_claim_that_there_was_room(world: World) -> None:
    world.agent("v1", cluster="cloud")
    world.submit(a_job("quick"))
    world.start("quick")
    world.finish("quick", ran=0.01)
    world.submit(a_job("long"), a_job("next"))
    world.start("long")
    assert told(world, "next") == (
        "next is prefetched on onprem/n1 and starts when a task there ends; it may spill over in 10s"
    )


def test_a_dry_run_names_jobs_of_the_same_submission_by_their_names(world: World) -> None:
    drawn = "abcdefgh2345"
    first = structs.replace(a_job("first").build(), job=JobId(drawn))
    shown = tried(world, first, a_job("second").after(drawn).build())
    assert [forecast.reason.message for forecast in shown] == [
        "owned capacity had room",
        "waits for first to succeed",
    ]


def test_a_dry_run_of_a_gang_says_on_how_many_nodes_it_would_start() -> None:
    world = World(load, clusters=(structs.replace(OWNED, gangs=True),))
    world.agent("n1")
    world.agent("n2")
    one, gang = tried(world, a_job("one").build()) + tried(world, a_job("gang").tasks(2).build())
    assert (place(one), one.nodes) == ("onprem/n1", 0)
    assert (place(gang), gang.nodes) == ("onprem/n1 and 1 more", 2)


def test_a_job_that_was_submitted_is_named_by_its_name_and_id(world: World) -> None:
    prepare = structs.replace(a_job("prepare").build(), job=JobId("abcdefgh2345"))
    world.propose(Submit((prepare,), "ada"))
    (forecast,) = tried(world, a_job("next").after("abcdefgh2345").build())
    assert forecast.reason.message == "waits for prepare (abcdefgh2345) to succeed"
    assert forecast.reason.details["jobs"] == ("abcdefgh2345",)
    world.submit(a_job("same"), a_job("last").after("abcdefgh2345").after("same", On.ANY))
    assert told(world, "last") == "last has waited 0s: waits for prepare (abcdefgh2345), same to end"


def test_a_dry_run_of_a_job_that_can_never_run_names_no_time(world: World) -> None:
    world.agent("v1", cluster="cloud")
    (forecast,) = tried(world, a_job("huge").cpus(64).build())
    assert forecast.reason.never
    assert forecast.spills_at is None
    assert forecast.starts_at is None


def capped(limit: int, wait: int = 10) -> World:
    """One owned CPU that is busy, rented ones at 1 a second each, and a budget of the project."""
    cloud = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=3600 * MONEY))
    chosen = PolicySet(wait=Choice("constant", {"wait": wait * SECOND}))
    budgets = (Budget(Of.PROJECT, "default", Per.MONTH, limit * MONEY),)
    world = World(load, chosen, (OWNED, cloud), budgets=budgets)
    world.agent("n1")
    world.agent("v1", cpus=4, cluster="cloud")
    world.submit(a_job("full").burst(Burst.NEVER))
    return world


def test_a_dry_run_says_when_a_job_would_spill_over_and_what_it_waits_for_until_then() -> None:
    world = capped(500, wait=1)
    (forecast,) = tried(world, a_job("a").terms(walltime=60 * SECOND).build())
    assert (forecast.cluster, forecast.node) == ("cloud", None)
    assert forecast.starts_at == format_time(world.now + SECOND)
    assert forecast.reason.code == "no_room"


def test_a_dry_run_says_that_a_budget_will_keep_a_job_from_being_rented_when_its_wait_is_over() -> None:
    world = capped(50)
    (forecast,) = tried(world, a_job("a").terms(walltime=60 * SECOND).build())
    assert (forecast.cluster, forecast.starts_at, forecast.spills_at) == (None, None, None)
    assert forecast.reason.code == "over_budget"
    world.submit(a_job("a").terms(walltime=60 * SECOND))
    world.wait(seconds=10)
    why = why_view(world.engine, world.job("a"), world.now).reason
    assert why == forecast.reason


def test_a_dry_run_says_that_max_cost_will() -> None:
    (forecast,) = tried(capped(500), a_job("a").terms(walltime=60 * SECOND).max_cost(MONEY).build())
    assert (forecast.cluster, forecast.reason.code) == (None, "over_max_cost")


def test_a_dry_run_counts_what_jobs_before_it_would_hold() -> None:
    world = capped(150, wait=0)
    first, behind = tried(
        world, *(a_job(name).terms(walltime=60 * SECOND).build() for name in ("first", "behind"))
    )
    assert (first.cluster, first.node) == ("cloud", "v1")
    assert (behind.cluster, behind.starts_at, behind.reason.code) == (None, None, "over_budget")
    assert behind.reason.details["left"] == 50


def test_a_dry_run_does_not_say_now_where_jobs_before_it_take_the_room() -> None:
    world = capped(5000, wait=0)
    jobs = [a_job(name).cpus(3).terms(walltime=60 * SECOND).build() for name in ("first", "behind")]
    _, behind = tried(world, *jobs)
    assert (behind.cluster, behind.starts_at, behind.reason.code) == (None, None, "no_room")


def test_a_job_that_no_cap_ever_pays_for_is_told_so() -> None:
    world = capped(500)
    world.submit(a_job("dear").burst(Burst.ALWAYS).terms(walltime=60 * SECOND).max_cost(MONEY))
    assert told(world, "dear").endswith("its max_cost is 1.00; it will not run unless the cap is raised")


def test_a_job_that_has_just_ended_says_where_and_why_there(world: World) -> None:
    world.submit(a_job("fine"), a_job("bad"))
    world.start("fine")
    ended = "on onprem/n1; it ran there because owned capacity had room"
    world.finish("fine", ran=1)
    assert told(world, "fine") == f"fine succeeded {ended}"
    world.start("bad")
    world.finish("bad", 3, ran=1)
    assert told(world, "bad") == (
        "bad failed on onprem/n1: exited with code 3; it ran there because owned capacity had room"
    )


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("CANCELLED", "one was cancelled"),
        ("TIMED_OUT", "one timed out on onprem/n1: it exceeded its walltime"),
    ],
)
def test_each_end_of_a_job_has_a_verb(state: str, said: str) -> None:
    _, _, rest = said.partition(" on ")
    place, _, why = rest.partition(": ")
    assert ended_sentence("one", state, place or None, why or None, None) == said


def test_a_job_whose_agents_somebody_drained_says_who_gives_them_work(world: World) -> None:
    world.agent("n2")
    world.propose(
        AgentGone(ClusterName("onprem"), NodeName("n2"), world.state.nodes["onprem/n2"].incarnation)
    )
    world.propose(Drain(ClusterName("onprem"), NodeName("n1"), "ada"))
    world.submit(a_job("one"))
    assert told(world, "one").startswith(
        "one has waited 0s: all connected agents of onprem that could run it are drained (onprem/n1); "
        "resume them with `spill agents resume onprem/n1`; "
    )
    world.propose(Resume(ClusterName("onprem"), NodeName("n1"), "ada"))
    assert world.where("one") == "onprem/n1"


def test_an_agent_that_is_stopping_is_not_drained(world: World) -> None:
    world.propose(Drain(ClusterName("onprem"), NodeName("n1")))
    world.submit(a_job("one"))
    assert told(world, "one").startswith("one has waited 0s: waits for an agent of onprem to connect")


def test_a_job_without_a_walltime_says_that_it_holds_all_that_was_left_of_a_budget() -> None:
    world = capped(500, wait=0)
    (forecast,) = tried(world, a_job("open").build())
    assert forecast.note == (
        "it has no walltime, so once rented it holds all that is left of the budget of project default "
        "(500.00 now) and blocks other jobs; submit it again with a walltime"
    )
    world.submit(a_job("open"))
    note = "it holds all 500.00 that was left of the budget of project default until it ends because it has no walltime; submit it again with a walltime"
    assert why_view(world.engine, world.job("open"), world.now).sentence.endswith(f"; {note}")
    assert job_view(world.engine, world.job("open")).note == note


def test_a_job_that_waits_for_a_budget_names_the_job_without_a_walltime_that_holds_it() -> None:
    world = capped(500, wait=0)
    world.submit(a_job("open"))
    world.submit(a_job("behind").terms(walltime=60 * SECOND))
    reason = why_view(world.engine, world.job("behind"), world.now).reason
    assert reason is not None
    assert (reason.details["holder"], reason.details["held"]) == ("open", 500)
    assert reason.message.endswith(
        "; open holds 500.00 of it until it ends because it has no walltime; wait, or cancel it and submit it with one"
    )
    stranger = why_view(world.engine, world.job("behind"), world.now, "another").reason
    assert stranger is not None
    assert stranger.details["holder"] == "a job of another project"
    world.cancel("open")
    world.finish("open", outcome=Outcome.STOPPED)
    assert world.where("behind") == "cloud/v1"


def test_a_job_with_a_walltime_or_without_a_budget_has_no_note() -> None:
    world = capped(500, wait=0)
    limited, never = tried(
        world, a_job("limited").terms(walltime=60 * SECOND).build(), a_job("never").burst(Burst.NEVER).build()
    )
    assert (limited.note, never.note) == (None, None)
    world.submit(a_job("limited").terms(walltime=60 * SECOND))
    assert job_view(world.engine, world.job("limited")).note is None


def answers(world: World, job: str) -> dict[str, str]:
    """What each cluster answers."""
    view = why_view(world.engine, world.job(job), world.now)
    return {each.cluster: each.reason.message for each in view.clusters if each.reason is not None}


def test_a_call_for_a_python_that_no_agent_has_names_those_that_there_are() -> None:
    world = World(load, clusters=(OWNED,))
    world.agent("n1", offers=("python", "python:3.11"))
    world.submit(a_job("call").needing("python", "python:3.12"))
    assert told(world, "call").startswith(
        "call has waited 0s: no cluster offers python:3.12: agents have Python 3.11; "
        "start one with --python PATH of that version"
    )
    world.agent("n2", offers=("python", "python:3.12"))
    world.wait(seconds=1)
    assert world.where("call") == "onprem/n2"


def test_an_agent_that_does_not_tell_its_version_of_python_gets_calls_of_all() -> None:
    world = World(load, clusters=(OWNED,))
    world.agent("old", cpus=2, offers=("python",))
    world.submit(a_job("new client").needing("python", "python:3.12"), a_job("old client").needing("python"))
    assert {world.where("new client"), world.where("old client")} == {"onprem/old"}


def test_a_job_that_needs_what_nobody_offers_says_so_for_all_clusters_and_for_each(world: World) -> None:
    world.agent("v1", cluster="cloud")
    world.submit(a_job("one").needing("gpu:a100"))
    assert told(world, "one") == (
        "one has waited 0s: no cluster offers gpu:a100; no known cluster could ever run it"
    )
    assert answers(world, "one") == dict.fromkeys(("onprem", "cloud"), "does not offer gpu:a100")


def test_a_job_for_a_cluster_that_does_not_exist_says_so(world: World) -> None:
    world.submit(a_job("one").where(Where(clusters=("mars",))))
    assert told(world, "one").startswith("one has waited 0s: there is no cluster named mars; ")
    assert answers(world, "one")["onprem"] == "ruled out by its `where`: cluster: mars"
    world.submit(a_job("two").where(Where(clusters=("mars", "onprem"), regions=("east",))))
    assert "ruled out by its `where`: region: east; cluster: mars, onprem" in told(world, "two")


def test_a_job_that_cannot_end_by_its_deadline_says_so(world: World) -> None:
    world.submit(a_job("full"))
    world.submit(a_job("one").terms(estimate=60 * SECOND).between(deadline=world.now + 30 * SECOND))
    assert told(world, "one").endswith("; it cannot end by its deadline")
    assert "could ever run it" not in told(world, "one")


@pytest.mark.parametrize(
    ("asked", "largest", "said"),
    [
        (Resources(64000), Resources(4000, 2**30), "requests 64 CPU per task; the largest machine has 4 CPU"),
        (Resources(1000, gpu=1), Resources(4000), "requests 1 GPU per task; no machine has a GPU"),
        (
            Resources(8000, 2**33, 2),
            Resources(4000, 2**30),
            "requests 8 CPU, 8Gi, 2 GPU per task; the largest machine has 4 CPU, 1Gi; no machine has a GPU",
        ),
        (
            Resources(1000, other=(("fpga", 3),)),
            Resources(4000),
            "requests 3 fpga per task; no machine has fpga",
        ),
        (
            Resources(4000, gpu=1),
            Resources(4000, gpu=2),
            "requests 4 CPU, 1 GPU per task; no machine has all of that",
        ),
    ],
)
def test_a_job_that_is_too_large_names_only_what_is_too_large(
    asked: Resources, largest: Resources, said: str
) -> None:
    assert str(TooBig(asked, largest)) == said
