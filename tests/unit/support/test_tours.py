"""What may differ between what a tour shows and what is printed, and what may not."""

import re
from pathlib import Path

import pytest

from tests.support.tours import CUT, Shell, output_of, pattern_of, section


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("67mjpu5c2yjw is 0.7s old", "lqvgietivyet  is 11ms old", True),
        ("ready http://127.0.0.1:7070", "ready http://127.0.0.1:41234", True),
        ("state SUCCEEDED", "state FAILED", False),
    ],
)
def test_only_numbers_times_and_ids_may_differ(shown: str, printed: str, same: bool) -> None:
    assert (re.fullmatch(pattern_of(shown), printed) is not None) is same


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        (["a 1", "b", "c"], True),
        (["a 2", CUT], True),
        ([CUT, "b", "c"], True),
        (["a [...]", CUT, "c"], True),
        (["a 1", "c"], False),
        (["a 1", "b"], False),
    ],
)
def test_only_what_says_so_is_left_out(shown: list[str], same: bool) -> None:
    assert (output_of(shown).fullmatch("a 3\nb\nc\n") is not None) is same


PAGE = """# Page

## First

```yaml
# it.yaml
a: 1
```

```console
$ cat it.yaml
# it.yaml
a: 1
```

## Second

```console
$ echo b
c
```
"""


def test_a_tour_is_one_section_with_its_files_and_commands(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        assert shell.tour(section(PAGE, "First")) == 1


def test_what_is_not_printed_as_it_is_shown_is_told(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell, pytest.raises(AssertionError, match="echo b is not shown as it printed"):
        shell.tour(section(PAGE, "Second"))


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell, pytest.raises(AssertionError, match="exited with 3: no"):
        shell.type("echo no; exit 3")


def test_a_section_that_is_not_there_is_told() -> None:
    with pytest.raises(AssertionError, match="'Third'"):
        section(PAGE, "Third")
