"""Operations of the client, step by step, without a server; and both faces carrying them out."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from spillover.client import AsyncClient, Client, Refused, Unreachable, WaitTimeout, asks, transfers
from spillover.client.asks import Ask, ask
from spillover.client.calling import CallOptions, Parcel, a_call, a_map, map_of, submitted
from spillover.client.flows import Pages, ReadingFlow
from spillover.client.gathering import Endings, Gathering
from spillover.client.steps import ClientStep, Flow, Work
from spillover.model.units import format_memory
from spillover.ports.blobs import digest_of
from spillover.wire import endpoints
from spillover.wire.api import FilesView, FileView, JobPage, ResultPage, ResultView, ServerView, WhyView
from spillover.wire.parameters import ListQuery

T = TypeVar("T")
DIGEST = "0" * 64


class Told:
    """Carries operations out with answers that a test has prepared; does what is to be done on this machine."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []
        self.last = b""

    def run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                answer = self._do(step)
                step = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
        except StopIteration as end:
            assert not self._answers
            returned: T = end.value
            return returned

    def _do(self, step: ClientStep[Any]) -> Any:
        if isinstance(step, Work):
            return step.do()
        answer = self._answers.pop(0)
        if isinstance(step, ReadingFlow):
            if isinstance(answer, bytes):
                step.take(answer)
            return answer if isinstance(answer, Exception) else None
        assert isinstance(step, Ask)
        self.asked.append(f"{step.method} {step.path}")
        self.last = step.body or b""
        return answer


def ended(*indexes: int) -> ResultPage:
    return ResultPage([ResultView(f"j.{index}", "SUCCEEDED", 0, None, None, b"7", None) for index in indexes])


def test_a_blob_that_is_there_is_not_sent() -> None:
    there, not_there = Told([]), Told([digest_of(b"x")], None)
    assert there.run(transfers.put_blob(b"x", None)) == digest_of(b"x")
    assert there.asked == ["POST /v1/blobs/missing"]
    assert not_there.run(transfers.put_blob(b"x", None)) == digest_of(b"x")
    assert not_there.asked == ["POST /v1/blobs/missing", f"PUT /v1/blobs/{digest_of(b'x')}"]


def test_a_file_that_breaks_off_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        Told(Unreachable("gone")).run(transfers.save_blob(DIGEST, tmp_path / "a", None))
    assert list(tmp_path.iterdir()) == []
    Told(b"all of it").run(transfers.save_blob(DIGEST, tmp_path / "a", None))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"all of it")]


def test_only_files_that_are_not_there_are_fetched(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x")
    view = FilesView(
        "j", 1, [1], [FileView("old", digest_of(b"x"), 1, False), FileView("new", DIGEST, 3, True)]
    )
    moved: list[tuple[int, int]] = []
    told = Told(view, b"abc")
    new = told.run(transfers.fetch("j", tmp_path, None, lambda *sofar: moved.append(sofar), force=False))
    assert new == [tmp_path / "new"]
    assert new[0].stat().st_mode & 0o111
    assert moved == [(0, 3), (3, 3)]


def test_the_inputs_of_calls_are_sent_before_they_are_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_bytes(b"x")
    (tmp_path / "b.csv").write_bytes(b"y")
    options: CallOptions = {"inputs": [Path("a.csv"), {"path": Path("b.csv"), "as": "c.csv"}]}
    unknown: dict[str, Any] = dict.fromkeys(ServerView.__struct_fields__)
    server = ServerView(**(unknown | {"max_inputs": 1 << 20}))
    one, (many, size) = a_call(len, ("abc",), {}, options), a_map(len, [("abc",)], {}, options)
    for parcel, number in ((one, None), (many, size)):
        told = Told(server, [digest_of(b"y")], None, [], ["j"])
        assert told.run(submitted(parcel, number, {})).job == "j"
        assert told.asked == [
            "GET /v1/server",
            "POST /v1/blobs/missing",
            f"PUT /v1/blobs/{digest_of(b'y')}",
            "POST /v1/blobs/missing",
            "POST /v1/jobs",
        ]
        assert b'"path":"c.csv"' in told.last
        assert digest_of(b"x").encode() in told.last


def test_what_is_to_send_is_logged_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(b"x" * 2048)
    (tmp_path / "b").write_bytes(b"y" * 1024)
    unknown: dict[str, Any] = dict.fromkeys(ServerView.__struct_fields__)
    server = ServerView(**(unknown | {"max_inputs": 1 << 20}))
    parcel = a_call(len, ("abc",), {}, {"inputs": ["a", "b"]})
    (function,) = parcel.blobs
    with caplog.at_level("INFO", "spillover.client"):
        told = Told(server, [digest_of(b"x" * 2048)], None, [function], None, ["j"])
        assert told.run(submitted(parcel, None, {})).size is None, "it is a call, and no map"
        Told(server, [], [], ["k"]).run(submitted(parcel, None, {}))
    size = len(parcel.blobs[function])
    assert caplog.messages == [
        "2 files, 3KiB; 2KiB to send",
        f"function and arguments, {format_memory(size)}B to send",
        "2 files, 3KiB; 0B to send",
    ]


def test_calls_are_submitted_once_the_server_has_what_they_need() -> None:
    kept: dict[str, float] = {}
    parcel = Parcel({"spec": {"key": "k"}}, {DIGEST: b"x"})
    first, second = Told([DIGEST], None, ["j"]), Told(["k"])
    assert first.run(submitted(parcel, None, kept)).job == "j"
    assert first.asked == ["POST /v1/blobs/missing", f"PUT /v1/blobs/{DIGEST}", "POST /v1/jobs"]
    assert second.run(submitted(parcel, None, kept)).job == "k"
    assert second.asked == ["POST /v1/jobs"]


def test_no_calls_ask_for_nothing() -> None:
    told = Told()
    none = told.run(submitted(None, 0, {}))
    assert told.run(none.values(None)) == []
    assert told.run(none.over())
    assert told.run(Endings(none, None).more()) == []
    told.run(none.cancel())
    assert told.asked == []


def test_a_job_that_is_no_array_is_no_map() -> None:
    class Single:
        id, array = "j", None

    with pytest.raises(Refused, match="use call_of"):
        Told(Single()).run(map_of("j"))


def test_calls_are_told_as_they_end() -> None:
    gathering = Gathering("j", 4)
    gathering.take(ended(2, 1))
    endings = Endings(gathering, None)
    assert Told().run(endings.more()) == [1, 2]
    assert Told(ResultPage([]), ended(3)).run(endings.more()) == [3]
    assert Told(ended(0)).run(endings.more()) == [0]
    assert Told().run(endings.more()) == []


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("timeout", [None, 0.0])
def test_a_call_whose_end_another_reader_took_is_told_all_the_same(size: int, timeout: float | None) -> None:
    gathering = Gathering("j", size)
    endings = Endings(gathering, timeout)
    telling = endings.more()
    next(telling)
    assert Told(ended(0)).run(gathering.value(0, None)) == 7
    with pytest.raises(StopIteration) as told:
        telling.send(ended(0))
    assert told.value.value == [0]


def test_nothing_is_asked_for_once_other_readers_took_all() -> None:
    gathering = Gathering("j", 2)
    gathering.take(ended(0, 1))
    assert Told().run(gathering.more(30.0)) == []
    assert Told().run(gathering.more(30.0, 1)) == []


def test_calls_that_do_not_end_in_time_are_told_so() -> None:
    gathering = Gathering("j", 2)
    why = WhyView("j", "QUEUED", None, "waits for a100", None, None, None, None, None, None, None, [])
    with pytest.raises(WaitTimeout, match="j did not end in time: waits for a100"):
        Told(ResultPage([]), why).run(Endings(gathering, 0.0).more())
    with pytest.raises(TimeoutError, match=r"j\.1 did not end in time: no server"):
        Told(ResultPage([]), Unreachable("no server")).run(gathering.value(1, 0.0))
    assert Told(ResultPage([])).run(gathering.ended(1, 0.0)) is None
    assert Told(ended(1)).run(gathering.value(1, 0.0)) == 7


def test_a_large_result_is_read_as_a_blob() -> None:
    gathering = Gathering("j", None)
    page = ResultPage([ResultView("j", "SUCCEEDED", 0, None, None, None, DIGEST)])
    assert Told(page, b'"large"').run(gathering.value(0, None)) == "large"


@pytest.mark.parametrize(
    ("limit", "sizes", "jobs"), [(None, [1000, 1000, 1000], 5), (3, [3, 1], 3), (2, [2], 2), (0, [], 0)]
)
def test_as_many_pages_are_asked_for_as_are_wanted(limit: int | None, sizes: list[int], jobs: int) -> None:
    pages = Pages(partial(asks.page, ListQuery()), lambda page: page.jobs, limit)
    stored: Sequence[Any] = [[1, 2], [3, 4], [5]]
    asked: list[int] = []
    found: list[Any] = []
    while (wanted := pages.ask()) is not None:
        at = int(wanted.query.get("cursor", "0"))
        size = int(wanted.query["limit"])
        asked.append(size)
        found += pages.take(JobPage(stored[at][:size], str(at + 1) if at < 2 else None))
    assert (asked, len(found)) == (sizes, jobs)


def refused_twice() -> Flow[str]:
    """Asks a server that is not there, and says what came of it."""
    try:
        yield from ask(endpoints.SERVER)
    except Unreachable:
        return (yield from Work(lambda: "not there"))
    return "there"


def test_a_face_that_blocks_lets_the_operation_say_what_a_failure_means() -> None:
    with Client("http://127.0.0.1:1", "token") as client:
        assert client._run(refused_twice()) == "not there"


async def test_a_face_for_asyncio_does_likewise() -> None:
    async with AsyncClient("http://127.0.0.1:1", "token", user="ada") as client:
        assert await client._run(refused_twice()) == "not there"
        assert client.user == "ada"
