"""How far a long piece of work is, as people see it."""

import io

from spillover.cli.output import Output
from spillover.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_than_on_a_terminal_each_part_is_a_line() -> None:
    err = io.StringIO()
    with progress(Output(io.StringIO(), err), 2, known=3) as done:
        done("one")
        done("two")
    lines = err.getvalue().splitlines()
    assert lines[0] == "spill: 3 results are known already"
    assert lines[1].startswith("spill: 1 of 2: one, about ")
    assert lines[2] == "spill: 2 of 2: two"


def test_a_terminal_shows_a_bar_that_goes_away() -> None:
    out, err = Terminal(), Terminal()
    with progress(Output(out, err), 2) as done:
        done("wait=constant(1h)[x]")
        done("two")
    assert out.getvalue() == ""
    assert "2/2" in err.getvalue()
    assert "known" not in err.getvalue()


def test_nothing_to_do_shows_nothing() -> None:
    err = Terminal()
    with progress(Output(io.StringIO(), err), 0):
        pass
    assert err.getvalue() == ""
