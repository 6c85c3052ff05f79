"""Time follows the wall clock as far as that can be believed."""

import pytest

from spillover.control.live.clock import ClockBounds, OtherClocks, SteadyTime, Votes
from spillover.model.units import DAY, HOUR, MINUTE, SECOND
from tests.support.live import Hands

YEAR = 365 * DAY


@pytest.fixture
def clock() -> Hands:
    return Hands()


def test_a_jump_within_the_bound_is_followed_and_told_once(clock: Hands) -> None:
    time = SteadyTime(clock)
    clock.set_wall(seconds=3600)
    assert time.now() == clock.wall()
    assert (time.take_jump(), time.take_jump(), time.held()) == (HOUR, 0, 0)


def test_a_jump_beyond_the_bound_is_held_back_and_time_goes_on(clock: Hands) -> None:
    time = SteadyTime(clock)
    before = time.now()
    clock.set_wall(seconds=10 * YEAR / SECOND)
    clock.pass_by(seconds=60)
    assert time.now() == before + MINUTE
    assert (time.held(), time.take_jump()) == (10 * YEAR, 0)


def test_a_clock_that_comes_back_was_never_followed(clock: Hands) -> None:
    time = SteadyTime(clock)
    clock.set_wall(seconds=7200)
    time.now()
    clock.pass_by(seconds=60)
    clock.set_wall(seconds=-7200)
    assert time.now() == clock.wall()
    assert (time.held(), time.take_jump()) == (0, 0)


def test_a_machine_that_was_suspended_is_no_jump(clock: Hands) -> None:
    time = SteadyTime(clock)
    clock.pass_by(seconds=90 * DAY / SECOND)  # as the clock that counts suspension sees it
    assert time.now() == clock.wall()
    assert (time.held(), time.take_jump()) == (0, 0)


def test_what_is_accepted_is_followed_and_told(clock: Hands) -> None:
    time = SteadyTime(clock)
    clock.set_wall(seconds=YEAR / SECOND)
    time.accept()
    assert time.now() == clock.wall()
    assert (time.held(), time.take_jump()) == (0, YEAR)


def test_a_start_after_some_weeks_is_as_late_as_the_clock_says(clock: Hands) -> None:
    last = clock.wall() - 30 * DAY
    assert SteadyTime(clock, last).now() == clock.wall()


def test_a_start_after_years_begins_where_the_journal_ended(clock: Hands) -> None:
    last = clock.wall() - 10 * YEAR
    time = SteadyTime(clock, last)
    clock.pass_by(seconds=5)
    assert time.now() == last + 5 * SECOND
    assert time.held() == 10 * YEAR


@pytest.mark.parametrize("wrong", [10 * YEAR, -10 * YEAR])
def test_a_clock_that_is_set_right_after_the_start_says_how_long_no_server_ran(
    clock: Hands, wrong: int
) -> None:
    last = clock.wall() - 3 * DAY
    clock.set_wall(seconds=wrong / SECOND)
    time = SteadyTime(clock, last)
    assert time.now() == last
    clock.set_wall(seconds=-wrong / SECOND)
    assert time.now() == last + 3 * DAY
    assert time.take_jump() == 3 * DAY
    clock.set_wall(seconds=3 * DAY / SECOND)  # from then on it is known, and the bound is the narrow one
    assert time.now() == last + 3 * DAY


def test_a_journal_that_ends_in_the_future_goes_on_from_there(clock: Hands) -> None:
    last = clock.wall() + 10 * YEAR
    time = SteadyTime(clock, last)
    clock.pass_by(seconds=5)
    assert time.now() == last + 5 * SECOND
    assert (time.held(), time.lead()) == (0, -10 * YEAR)


def test_bounds_are_as_configured(clock: Hands) -> None:
    time = SteadyTime(clock, clock.wall() - DAY, ClockBounds(jump=MINUTE, away=HOUR))
    assert time.held() == DAY
    time.accept()
    clock.set_wall(seconds=61)
    assert time.held() == 61 * SECOND


def test_machines_have_one_vote_each_and_this_one_none(clock: Hands) -> None:
    others = OtherClocks(here="this")
    for agent, machine in (("a", "this"), ("b", "that"), ("c", "that"), ("d", "third"), ("e", "")):
        others.introduce(agent, machine)
        others.hear(agent, clock.wall(), clock.monotonic())
    others.hear("stranger", clock.wall(), clock.monotonic())
    assert others.votes(clock.wall(), clock.monotonic()) == Votes(2, 0)
    assert others.votes(clock.wall() + YEAR, clock.monotonic()) == Votes(0, 2)


def test_what_was_said_long_ago_is_no_vote(clock: Hands) -> None:
    others = OtherClocks(here="this")
    others.introduce("a", "that")
    others.hear("a", clock.wall(), clock.monotonic())
    clock.pass_by(seconds=59)
    assert others.votes(clock.wall(), clock.monotonic()) == Votes(1, 0)
    clock.pass_by(seconds=2)
    assert others.votes(clock.wall(), clock.monotonic()) == Votes(0, 0)


def test_where_this_machine_is_not_known_no_other_surely_is_another(clock: Hands) -> None:
    others = OtherClocks(here="")
    others.introduce("a", "that")
    others.hear("a", clock.wall(), clock.monotonic())
    assert others.votes(clock.wall(), clock.monotonic()) == Votes(0, 0)


@pytest.mark.parametrize(
    ("votes", "carried"), [((1, 0), True), ((2, 1), True), ((1, 1), False), ((0, 0), False)]
)
def test_a_clock_is_believed_if_more_agree_than_do_not(votes: tuple[int, int], carried: bool) -> None:
    assert Votes(*votes).carried is carried
