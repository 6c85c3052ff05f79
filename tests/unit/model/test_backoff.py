"""What failed is tried again, after pauses that grow."""

from spillover.model.backoff import LONGEST, Backoff, pause_after, reason_of
from spillover.model.units import FOREVER, SECOND


def test_pauses_double_from_a_second_to_five_minutes() -> None:
    assert [pause_after(tries) // SECOND for tries in range(1, 12)] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
        300,
        300,
    ]
    assert pause_after(10**6) == LONGEST


def test_what_failed_waits_for_its_next_try_and_is_forgotten_when_it_is_done() -> None:
    backoff = Backoff()
    backoff.put("archiving", "a", ValueError("odd"), 100)
    assert backoff.waits("archiving", "a", 100)
    assert not backoff.waits("archiving", "b", 100)
    assert (backoff.next_try(), backoff.due("archiving", 100)) == (100 + SECOND, [])
    assert backoff.due("archiving", 100 + SECOND) == ["a"]
    again = backoff.put("archiving", "a", KeyError("odder"), 100 + SECOND)
    assert (again.tries, again.since, again.next_try) == (2, 100, 100 + 3 * SECOND)
    assert again.reason == "KeyError: 'odder'"
    assert [each.work for each in backoff.of("a")] == ["archiving"]
    backoff.done("archiving", "a")
    assert (len(backoff), backoff.next_try()) == (0, FOREVER)


def test_a_reason_is_one_plain_line_whatever_was_raised() -> None:
    class Sly(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    backoff = Backoff()
    assert backoff.put("x", "a", Sly(), 0).reason == "Sly"
    assert (
        backoff.put("x", "a", ValueError("a\nb\0" + "c" * 900), 0).reason
        == "ValueError: a b\ufffd" + "c" * 284
    )


def test_the_reason_of_a_group_of_one_is_that_of_the_one() -> None:
    inner = ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("no route")])
    assert reason_of(ExceptionGroup("unhandled errors in a TaskGroup", [inner])) == "ValueError: no route"
    both = ExceptionGroup("two", [ValueError("a"), ValueError("b")])
    assert reason_of(both) == "ExceptionGroup: two (2 sub-exceptions)"
