"""What is noted about objects that were not heard of is kept, but not without end."""

from spillover.clusters.kubernetes.attempts.notes import MOST_OBJECTS, Notes
from tests.support.kubernetes import a_note


def test_of_what_is_noted_about_objects_that_are_never_heard_of_the_newest_is_kept() -> None:
    notes = Notes()
    for number in range(MOST_OBJECTS + 5):
        notes.keep(a_note("FailedMount", "no volume", f"spill-{number}"))
    notes.keep(a_note("FailedMount", "no volume", "somebody-else"))
    assert [notes.take(f"spill-{number}") for number in range(5)] == [()] * 5
    assert notes.take("somebody-else") == ()
    (kept,) = notes.take("spill-5")
    assert kept.message == "no volume"
    assert notes.take("spill-5") == ()
