"""What a token may submit in a time: a bucket that fills, is emptied, and says when to come back."""

import pytest

from spillover.control.requests.limits import KINDS, MOST_BUCKETS, Gauge, Rate
from spillover.ports.commands import CommandError, ErrorKind
from tests.support.inside import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def refused(gauge: Gauge, token: str, count: int) -> CommandError:
    with pytest.raises(CommandError) as caught:
        gauge.submit(token, count)
    return caught.value


def test_without_a_rate_all_is_taken(clock: HandClock) -> None:
    gauge = Gauge(clock)
    for _ in range(1000):
        gauge.submit("t", 1000)
    assert dict(gauge.refused) == dict.fromkeys(KINDS, 0)


def test_a_burst_is_taken_and_then_as_much_as_comes_back(clock: HandClock) -> None:
    gauge = Gauge(clock, submissions=Rate(2.0, 10))
    gauge.submit("t", 4)
    gauge.submit("t", 6)
    error = refused(gauge, "t", 1)
    assert (error.kind, error.retry_after) == (ErrorKind.LIMITED, 0.5)
    assert "more than 2 jobs a second (at most 10 at once); try again in 0.5 s" in error.message
    clock.pass_by(0.5)
    gauge.submit("t", 1)
    refused(gauge, "t", 1)
    assert gauge.refused["submissions_per_second"] == 2


def test_waiting_as_long_as_told_is_enough(clock: HandClock) -> None:
    gauge = Gauge(clock, submissions=Rate(3.0, 7))
    gauge.submit("t", 7)
    for count in (1, 5, 7, 3):
        clock.pass_by(refused(gauge, "t", count).retry_after or 0)
        gauge.submit("t", count)


def test_a_pause_saves_up_no_more_than_a_burst(clock: HandClock) -> None:
    gauge = Gauge(clock, submissions=Rate(100.0, 10))
    gauge.submit("t", 10)
    clock.pass_by(3600)
    gauge.submit("t", 10)
    refused(gauge, "t", 1)


def test_more_than_a_burst_is_taken_from_a_full_bucket_and_paid_for_after(clock: HandClock) -> None:
    gauge = Gauge(clock, submissions=Rate(10.0, 10))
    gauge.submit("t", 100)
    assert refused(gauge, "t", 1).retry_after == pytest.approx(9.1)
    assert refused(gauge, "t", 100).retry_after == pytest.approx(10.0)


def test_each_token_has_a_bucket_of_its_own(clock: HandClock) -> None:
    gauge = Gauge(clock, submissions=Rate(1.0, 1))
    for token in range(MOST_BUCKETS + 10):
        gauge.submit(str(token), 1)
    refused(gauge, str(MOST_BUCKETS + 9), 1)
