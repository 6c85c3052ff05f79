"""No path, pattern or link leads out of a folder, whatever somebody names it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spillover.client.errors import Refused
from spillover.client.fetching import plan
from spillover.client.packing import pack
from spillover.forms.jobs.matching import Folder, among, fixed
from spillover.model.files import MOST_PART, MOST_PATH, clash, wrong_path
from spillover.wire.api import FilesView, FileView
from tests.support.tiers import examples

HOSTILE = [
    "..",
    ".",
    "",
    "/",
    "~",
    "*",
    "**",
    "[a]",
    "a\nb",
    "ä",
    "e\u0301",
    "\u202e",
    "-rf",
    "a b",
    ".git",
    "CON",
    "x" * 255,
]
part = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=8), st.sampled_from(["a", "b", "c"]))
path = st.lists(part, min_size=1, max_size=5).map("/".join)
name = st.one_of(
    st.sampled_from(["a", "b", ".hidden", "ä", "a b", "x\ny", "[a]", "*"]),
    st.text("abc", min_size=1, max_size=3),
)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder with something beside it that nobody may reach."""
    with tempfile.TemporaryDirectory() as outside:
        (Path(outside) / "secret").write_text("secret")
        root = Path(outside) / "root"
        root.mkdir()
        yield root


@given(path)
@settings(max_examples=examples(500))
def test_a_path_that_is_taken_stays_below_its_folder(text: str) -> None:
    if wrong_path(text) is None:
        whole = os.path.normpath(os.path.join("/root/folder", text))  # noqa: PTH118 - as the system joins them
        assert whole.startswith("/root/folder/")
        assert len(text.encode()) <= MOST_PATH
        assert all(part not in {"", ".", ".."} for part in text.split("/"))
        assert "\0" not in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/x",
        "..",
        "a/..",
        "../a",
        "a/../b",
        "a//b",
        "./a",
        "a/.",
        "a\0b",
        "x" * (MOST_PART + 1),
        "\udcff",
        "a/" * 600 + "b",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(text: str) -> None:
    assert wrong_path(text) is not None


@given(st.lists(path, max_size=6))
def test_paths_that_do_not_clash_can_all_be_there(paths: list[str]) -> None:
    paths = [
        each for each in paths if wrong_path(each) is None and len(each.encode()) < 200 and each.isprintable()
    ]
    if clash(paths) is not None:
        return
    with folder() as root:
        for each in paths:
            (root / each).parent.mkdir(parents=True, exist_ok=True)
            (root / each).write_text(each)
        assert all((root / each).read_text() == each for each in paths)


trees = st.lists(
    st.tuples(
        st.lists(name, min_size=1, max_size=3),
        st.sampled_from(["file", "up", "out", "in", "self", "dangling", "fifo"]),
    ),
    max_size=8,
)


@given(trees, st.one_of(path, st.sampled_from(["**", "**/*", "*", "a/**", "?", "[ab]*", "a", "*/b"])))
@settings(max_examples=examples(200))
def test_what_matches_is_a_file_of_the_folder_and_each_is_named_once(
    tree: list[tuple[list[str], str]], pattern: str
) -> None:
    if wrong_path(pattern) is not None:
        return
    with folder() as root:
        for parts, kind in tree:
            target = root.joinpath(*parts)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                match kind:
                    case "file":
                        target.touch(exist_ok=False)
                    case "up":
                        target.symlink_to(root.parent)
                    case "out":
                        target.symlink_to(root.parent / "secret")
                    case "in":
                        target.symlink_to(root / "a")
                    case "self":
                        target.symlink_to(target.parent)
                    case "dangling":
                        target.symlink_to("nowhere")
                    case _:
                        os.mkfifo(target)
            except OSError:
                continue  # something else is there already
        odd: list[str] = []
        found = list(Folder(root, lambda path, _: odd.append(path)).files(pattern))
        assert len(set(found)) == len(found)
        assert found == list(Folder(root, lambda *_: None).files(pattern)), "the order is not always the same"
        for each in found:
            real = (root / each).resolve()
            assert real.is_file()
            assert real.is_relative_to(root.resolve())
            assert each.startswith(fixed(pattern))
        assert not any(each in found for each in odd)


plain_names = st.sampled_from(["a", "b", ".hidden", "ab", "x y"])
patterns = st.lists(
    st.sampled_from(["**", "*", "a", "b", "?", "[ab]*", ".*", "a*", "ab", ".hidden"]), min_size=1, max_size=4
).map("/".join)


@given(
    st.lists(st.lists(plain_names, min_size=1, max_size=4).map("/".join), max_size=8, unique=True), patterns
)
@example(["a/b", ".hidden/a", "a/.hidden/b"], "**")
@example(["a/b/a", "a/a"], "**/**/a")
@settings(max_examples=examples(400))
def test_a_list_of_paths_is_searched_as_a_folder_is(paths: list[str], pattern: str) -> None:
    if clash(paths) is not None:
        return
    with folder() as root:
        for each in paths:
            (root / each).parent.mkdir(parents=True, exist_ok=True)
            (root / each).touch()
        found = set(Folder(root, lambda *_: None).files(pattern))
    assert set(among(paths, pattern)) == found


@given(path, st.one_of(st.none(), path))
@example("[a]", "")
@settings(max_examples=examples(200))
def test_packing_takes_what_is_inside_or_refuses_in_words(source: str, to: str | None) -> None:
    with folder() as root:
        (root / "a").mkdir()
        (root / "a" / "b").write_text("inside")
        (root / "b").symlink_to("a/b")
        (root / "c").symlink_to("../secret")
        entry = source if to is None else {"path": source, "as": to}
        document = {"spec": {"workdir": str(root), "inputs": [entry]}}
        try:
            packed = pack([document], 1 << 20)
        except Refused:
            return
        for file in packed.documents[0]["spec"]["inputs"]:
            assert wrong_path(file["path"]) is None
            assert packed.sources[file["digest"]].read_text() == "inside"


@given(path)
@settings(max_examples=examples(200))
def test_fetching_never_writes_outside(text: str) -> None:
    with folder() as root:
        (root / "a").symlink_to("..")
        (root / "b").write_text("a file")
        file = FileView(text, "0" * 64, 1, executable=False)
        try:
            todo = plan(FilesView("job", 1, [1], [file]), root, force=True)
        except Refused:
            return
        except OSError as error:
            assert error.errno is not None  # noqa: PT017 - a name that the file system does not take
            return
        for each in todo.wanted:
            where = todo.path(each)
            assert where.parent.resolve().is_relative_to(root.resolve())
            assert not where.is_symlink()
