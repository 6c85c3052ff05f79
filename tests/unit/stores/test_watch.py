from spillover.stores.watch import Watch
from spillover.testing.stores import Watchface


def test_what_does_not_change_for_a_term_has_expired() -> None:
    clock = Watchface()
    watch = Watch(10, clock)
    assert not watch.expired(1, 0)
    clock.now = 9.9
    assert not watch.expired(1, 0)
    clock.now = 10
    assert watch.expired(1, 0)


def test_every_change_starts_the_term_anew() -> None:
    clock = Watchface()
    watch = Watch(10, clock)
    watch.expired(1, 0)
    clock.now = 10
    assert not watch.expired(1, 1)
    clock.now = 20
    assert not watch.expired(2, 1)
    clock.now = 29
    assert not watch.expired(2, 1)
    clock.now = 30
    assert watch.expired(2, 1)


def test_time_before_the_first_look_does_not_count() -> None:
    clock = Watchface()
    watch = Watch(10, clock)
    clock.now = 1_000
    assert not watch.expired(1, 0)
