"""How far a long piece of work is, as people see it."""

import io

import pytest

from spillover.cli.printing.output import Output
from spillover.cli.printing.progress import counting, progress, tell_inputs
from spillover.client.packing import InputSizes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_than_on_a_terminal_each_part_is_a_line() -> None:
    err = io.StringIO()
    with progress(Output(io.StringIO(), err), 2, known=3) as done:
        done("one")
        done("two")
    lines = err.getvalue().splitlines()
    assert lines[0] == "spill: 3 results exist already"
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


def test_one_long_simulation_says_how_many_jobs_have_ended_and_takes_it_back() -> None:
    err = Terminal()
    with counting(Output(io.StringIO(), err), 4000, patience=0.0) as ended:
        assert ended is not None
        while not err.getvalue():
            ended(1000)
    assert err.getvalue().startswith("\r1,000 of 4,000 jobs ended, about ")
    assert err.getvalue().endswith("\r\x1b[K")


def test_a_short_simulation_says_nothing_and_nobody_is_asked_elsewhere_than_on_a_terminal() -> None:
    err = Terminal()
    with counting(Output(io.StringIO(), err), 4000) as ended:
        assert ended is not None
        ended(1000)
    assert err.getvalue() == ""
    with counting(Output(io.StringIO(), io.StringIO()), 4000) as ended:
        assert ended is None


def test_nothing_to_do_shows_nothing() -> None:
    err = Terminal()
    with progress(Output(io.StringIO(), err), 0):
        pass
    assert err.getvalue() == ""


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (InputSizes(12, 3_565_158, 204_800), "12 files, 3.4MiB; 200KiB to send, the rest is there already"),
        (InputSizes(1, 7, 7), "1 file, 7B to send"),
        (InputSizes(5_000, 2 << 30, 0), "5,000 files, 2GiB, all there already"),
    ],
)
def test_the_size_of_inputs_is_one_line_in_a_pipe_too(sizes: InputSizes, said: str) -> None:
    err = io.StringIO()
    tell_inputs(Output(io.StringIO(), err))(sizes)
    assert err.getvalue() == f"spill: {said}\n"
