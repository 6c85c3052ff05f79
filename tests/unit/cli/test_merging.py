"""The output of several tasks in one stream: whole lines, each with its task, and nothing hidden by one that fails."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from spillover.cli.merging import MOST_LINE, Labelled, Read, labels_of, one_by_one, together
from tests.unit.cli.conftest import a_job


def test_only_whole_lines_are_labelled_and_the_last_one_is_ended() -> None:
    label = Labelled(" 3")
    assert label.feed(b"on") == b""
    assert label.feed(b"e\ntwo\nthr") == b"[ 3] one\n[ 3] two\n"
    assert (label.end(), label.end()) == (b"[ 3] thr\n", b"")


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    label = Labelled("0")
    assert label.feed(b"x" * (MOST_LINE + 1)) == b"[0] " + b"x" * (MOST_LINE + 1) + b"\n"
    assert label.end() == b""


def test_tasks_come_one_by_one_afterwards() -> None:
    pieces = [[b"a\n"], [], [b"b", b"c\n", b"d"]]
    assert b"".join(one_by_one(lambda task: pieces[task], "012")) == b"[0] a\n[2] bc\n[2] d\n"


@pytest.mark.parametrize("merge", [one_by_one, together])
def test_a_task_that_cannot_be_read_does_not_hide_the_others(
    merge: Callable[[Read, Sequence[str]], Iterable[bytes]],
) -> None:
    def read(task: int) -> Iterable[bytes]:
        yield f"from {task}\n".encode()
        if task == 1:
            raise ConnectionError("agent n2 is gone")

    found: list[bytes] = []
    with pytest.raises(ConnectionError, match="agent n2 is gone"):
        found.extend(merge(read, "012"))
    assert sorted(found) == [b"[0] from 0\n", b"[1] from 1\n", b"[2] from 2\n"]


def test_labels_are_ranks_or_groups() -> None:
    def labels(spec: dict[str, object], **counts: int) -> list[str]:
        return labels_of(a_job(spec={"spec": spec}, task_counts=counts))

    assert labels({}) == ["0"]
    assert labels({"tasks": 12})[1::10] == [" 1", "11"]
    groups = [{"name": "leader", "tasks": 1}, {"name": "io", "tasks": 2}]
    assert labels({"groups": groups}) == ["leader 0", "io 0    ", "io 1    "]


def test_a_job_of_elastic_size_has_as_many_labels_as_it_got_tasks() -> None:
    assert len(labels_of(a_job(spec={"spec": {"tasks": "2..8"}}))) == 8
    assert len(labels_of(a_job(spec={"spec": {"tasks": "2..8"}}, task_counts={"RUNNING": 3}))) == 3
