"""What is known of the tasks of a nursery that is gone."""

import os

from spillover.agent.nursery.marks import MOST, Marks, make


def test_the_other_side_sees_which_task_was_begun_last() -> None:
    file = make()
    ours, theirs = Marks(file), Marks(file)
    os.close(file)
    assert not ours.begun(1, 1)
    theirs.begin(1, 7)
    assert [ours.begun(1, key) for key in (3, 7, 8)] == [True, True, False]
    assert not ours.begun(0, 7)


def test_a_task_of_a_thread_that_leaves_no_marks_counts_as_begun() -> None:
    file = make()
    marks = Marks(file)
    os.close(file)
    marks.begin(MOST, 1)
    assert marks.begun(MOST, 2)
