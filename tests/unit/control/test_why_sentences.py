import pytest
from msgspec import structs

from spillover.control.forecasting import forecasts
from spillover.control.views import why_view
from spillover.core.proposals import NewJob, Submit
from spillover.deciding.engine import Trial
from spillover.forms.jobs import JobForm
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND, format_time
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from spillover.wire.api import Forecast


@pytest.fixture
def world() -> World:
    """One owned CPU that takes work ahead of room; a job waits ten seconds."""
    world = World(load, PolicySet(wait=Choice("constant", {"wait": 10 * SECOND})))
    world.agent("n1", queue=8)
    return world


def told(world: World, job: str) -> str:
    return why_view(world.engine, world.job(job), world.now).sentence


def tried(world: World, *new: NewJob) -> list[Forecast]:
    """What a dry run says of these jobs."""
    trial = world.engine.trial(world.now, Submit(new, "ada"))
    assert isinstance(trial, Trial)
    forms = [JobForm(each.spec) for each in new]
    return forecasts(world.engine.board, [each.job for each in new], forms, trial).jobs


def test_a_job_that_runs_says_for_how_long(world: World) -> None:
    world.submit(a_job("one"))
    assert told(world, "one") == "one was placed on onprem/n1 0s ago: owned capacity had room"
    world.start("one")
    world.wait(seconds=3)
    assert told(world, "one") == "one has run on onprem/n1 for 3s: owned capacity had room"


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
        "next was handed to onprem/n1 ahead of room: it starts when a task there has ended; "
        "it may spill over in 10s"
    )


def test_a_dry_run_names_jobs_of_the_same_submission_by_their_names(world: World) -> None:
    drawn = "abcdefgh2345"
    first = structs.replace(a_job("first").build(), job=JobId(drawn))
    shown = tried(world, first, a_job("second").after(drawn).build())
    assert [forecast.reason.message for forecast in shown] == [
        "owned capacity had room",
        "waits for first to end",
    ]


def test_a_dry_run_names_jobs_that_were_submitted_by_their_ids(world: World) -> None:
    world.submit(a_job("known"))
    (forecast,) = tried(world, a_job("next").after("known").build())
    assert forecast.reason.message == "waits for known to end"


def test_a_dry_run_of_a_job_that_can_never_run_names_no_time(world: World) -> None:
    world.agent("v1", cluster="cloud")
    (forecast,) = tried(world, a_job("huge").cpus(64).build())
    assert forecast.reason.never
    assert forecast.spills_at is None
    assert forecast.starts_at is None
