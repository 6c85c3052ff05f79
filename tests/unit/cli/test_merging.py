"""The output of several tasks in one stream: whole lines, each with its task, and nothing hidden by one that fails."""

from collections.abc import Callable, Iterable

import pytest

from spillover.cli.merging import MOST_LINE, Labelled, Read, one_by_one, tasks_of, together


def test_only_whole_lines_are_labelled_and_the_last_one_is_ended() -> None:
    label = Labelled(3, 12)
    assert label.feed(b"on") == b""
    assert label.feed(b"e\ntwo\nthr") == b"[ 3] one\n[ 3] two\n"
    assert (label.end(), label.end()) == (b"[ 3] thr\n", b"")


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    label = Labelled(0, 2)
    assert label.feed(b"x" * (MOST_LINE + 1)) == b"[0] " + b"x" * (MOST_LINE + 1) + b"\n"
    assert label.end() == b""


def test_tasks_come_one_by_one_afterwards() -> None:
    pieces = [[b"a\n"], [], [b"b", b"c\n", b"d"]]
    assert b"".join(one_by_one(lambda task: pieces[task], 3)) == b"[0] a\n[2] bc\n[2] d\n"


@pytest.mark.parametrize("merge", [one_by_one, together])
def test_a_task_that_cannot_be_read_does_not_hide_the_others(
    merge: Callable[[Read, int], Iterable[bytes]],
) -> None:
    def read(task: int) -> Iterable[bytes]:
        yield f"from {task}\n".encode()
        if task == 1:
            raise ConnectionError("agent n2 is gone")

    found: list[bytes] = []
    with pytest.raises(ConnectionError, match="agent n2 is gone"):
        found.extend(merge(read, 3))
    assert sorted(found) == [b"[0] from 0\n", b"[1] from 1\n", b"[2] from 2\n"]


def test_the_number_of_tasks_is_in_the_job_file() -> None:
    assert tasks_of({"spec": {"tasks": 4}}) == 4
    assert tasks_of({"spec": {}}) == tasks_of({}) == 1
