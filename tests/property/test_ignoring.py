"""Rules of `.gitignore` mean here what they mean to git itself."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spillover.forms.jobs.ignoring import RuleFiles
from tests.support.processes import clean_environment
from tests.support.tiers import examples

FILES = [
    *(
        "a",
        "b",
        "ab",
        "abc",
        "a.csv",
        "B.csv",
        ".hidden",
        "#x",
        "!x",
        "a b",
        "x ",
        "a-b",
        "a]",
        "ä",
        "a\\b",
        "[",
        "*",
    ),
    *("d/a", "d/a.csv", "d/d/a", "d/e/a.csv", "d/e/f/b", "e/a", "e/d/b", "out/log", "out/keep", "d/out/log"),
]
words = st.sampled_from(
    [
        *(
            "a",
            "b",
            "d",
            "e",
            "f",
            "out",
            "log",
            "keep",
            "csv",
            ".",
            "/",
            "//",
            "*",
            "**",
            "***",
            "/**/",
            "**/",
            "/**",
        ),
        *(
            "?",
            "[ab]",
            "[!a]",
            "[^a-c]",
            "[a-",
            "[]]",
            "[a",
            "[[:alpha:]]",
            "[[:x:]]",
            "[[:alpha]",
            "[\\]]",
            "[z-a]",
        ),
        *("\\", "\\*", "\\#", "\\!", "!", "#", " ", "\\ ", "\t", "-", "ä", "x", "[a-b-c]", "[!]a]", "]"),
    ]
)
rule = st.lists(words, min_size=1, max_size=5).map("".join)
texts = st.lists(rule, max_size=5).map("\n".join)
trees = st.dictionaries(st.sampled_from(["", "d", "d/e", "e", "out"]), texts, min_size=1, max_size=3)


def ignored_by_git(root: Path) -> set[str]:
    asked = "".join(f"{each}\0" for each in FILES)
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=root,
        input=asked.encode(),
        capture_output=True,
        check=False,
        env=clean_environment() | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    )
    assert done.returncode in {0, 1}, done.stderr
    return set(done.stdout.decode().split("\0")) - {""}


def ignored_here(tree: dict[str, str]) -> set[str]:
    rules = RuleFiles(lambda folder: tree.get(folder, ""))

    def is_left_out(path: str) -> bool:
        parts = path.split("/")
        folders = ("/".join(parts[:count]) for count in range(1, len(parts)))
        if any(rules.leave_out(each, folder=True) for each in folders):
            return True
        return bool(rules.leave_out(path, folder=False))

    return {each for each in FILES if is_left_out(each)}


@pytest.fixture(scope="module")
def repository() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        subprocess.run(["git", "init", "-q", folder], check=True, env=clean_environment())
        for each in FILES:
            (root / each).parent.mkdir(parents=True, exist_ok=True)
            (root / each).touch()
        yield root


@given(trees)
@example({"": "*.csv\n!a.csv\n/d/e\n", "d": "!a.csv\n"})
@example({"": "d/\n!d/a\n"})
@example({"": "**/log\nout/**\n!out/keep\nd/**/a.csv\n"})
@example({"": "\\#x\n\\!x\nx\\ \nx \n"})
@example({"": "a\r\n\ufeffb\n"})
@example({"": "\ufeffb\n"})
@settings(max_examples=examples(150), deadline=None)
def test_the_same_files_are_left_out_as_by_git(repository: Path, tree: dict[str, str]) -> None:
    for folder in ("", "d", "d/e", "e", "out"):
        (repository / folder / ".gitignore").write_bytes(tree.get(folder, "").encode())
    assert ignored_here(tree) == ignored_by_git(repository)
