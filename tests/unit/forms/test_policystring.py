"""Policies in a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.forms.policies import read_choice
from spillover.forms.policystring import points, read_policies
from spillover.forms.problems import BadForm, Findings
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import OPTIONS, short_duration, write_policies
from spillover.model.units import HOUR, MINUTE, parse_duration

FULL = "wait=compute(0.076,max_queue=30),backfill=out_of_order,order=fifo,place=best_fit"


def refused(text: str) -> list[str]:
    with pytest.raises(BadForm) as error:
        read_policies(text, "--policy")
    return str(error.value).splitlines()


def test_a_full_line_is_read_and_written_as_it_was() -> None:
    policies = read_policies(FULL)
    assert policies == PolicySet()
    assert write_policies(policies) == FULL


def test_what_a_line_does_not_name_is_as_it_was() -> None:
    base = read_policies("order=priority,place=first_fit,depth=5,unknown_runtime=2h")
    assert base.depth == 5
    assert base.unknown_runtime == 2 * HOUR
    changed = read_policies("wait=zero", base=base)
    assert changed == PolicySet(
        order=Choice("priority"),
        wait=Choice("zero"),
        place=Choice("first_fit"),
        depth=5,
        unknown_runtime=2 * HOUR,
    )
    assert read_policies(write_policies(changed)) == changed


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("zero", Choice("zero")),
        ("never()", Choice("never")),
        ("constant(1h)", Choice("constant", {"wait": HOUR})),
        ("constant(wait=90m)", Choice("constant", {"wait": 90 * MINUTE})),
        ("runtime(0.25)", Choice("runtime", {"coefficient": 0.25})),
        ("resource(0.5556h)", Choice("resource", {"coefficient": 2_000_160_000_000})),
        ("compute(0.1389)", Choice("compute", {"coefficient": 0.1389})),
        ("star(0.77h,h=15m,k=3)", Choice("star", {"coefficient": 2772 * 10**9, "h": 15 * MINUTE, "k": 3})),
        ("budget(0.05,shape=compute)", Choice("budget", {"b": 0.05, "shape": "compute"})),
        ("break_even(0.1)", Choice("break_even", {"coefficient": 0.1})),
        ("break_even(0.1,most_ends=50)", Choice("break_even", {"coefficient": 0.1, "most_ends": 50})),
        (
            "zero(min_wait=1m,max_wait=2m,max_queue=3,rent_cpu_only=true,short_job_threshold=5m)",
            Choice(
                "zero",
                {
                    "min_wait": MINUTE,
                    "max_wait": 2 * MINUTE,
                    "max_queue": 3,
                    "rent_cpu_only": True,
                    "short_job_threshold": 5 * MINUTE,
                },
            ),
        ),
    ],
)
def test_each_policy_takes_its_options_and_is_written_so_that_it_reads_the_same(
    text: str, choice: Choice
) -> None:
    policies = read_policies(f" wait = {text} ")
    assert policies.wait == choice
    assert read_policies(write_policies(policies)) == policies


def test_shares_of_projects_are_read_from_a_line_and_from_a_file_alike() -> None:
    written = read_policies("order=fair_share(3d,shares=vision=2; nlp=0.5,gpu_weight=10)")
    shares = "nlp=0.5;vision=2"
    assert written.order == Choice("fair_share", {"half_life": 72 * HOUR, "shares": shares, "gpu_weight": 10})
    assert read_policies(write_policies(written)) == written
    found = Findings()
    given = {"half_life": "3d", "shares": {"vision": 2, "nlp": 0.5}, "gpu_weight": 10}
    assert read_choice("order", "fair_share", given, (), found) == written.order
    for wrong in ({"shares": 3}, {"shares": {"vision": True}}, {"shares": {"vision": "many"}}):
        read_choice("order", "fair_share", wrong, (), found)
    assert len(found.found) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("wait=compute", "wait.compute.coefficient: is missing; write how much"),
        ("wait=break_even", "wait.break_even.coefficient: is missing; write how much"),
        ("wait=constant(1)", "wait.constant.wait: '1' is not a duration"),
        ("wait=compute(1h)", "wait.compute.coefficient: '1h' is not a number"),
        (
            "wait=compute(0.1,30)",
            "wait.compute: '30' has no option name (only the first option may omit it)",
        ),
        ("wait=zero(1)", "wait.zero: '1' has no option name (zero has no default option)"),
        ("wait=zero(max_queue=1.5)", "wait.zero.max_queue: 1.5 is not a whole number"),
        ("wait=zero(max_queu=1)", "wait.zero.max_queu: unknown option; did you mean `max_queue`?"),
        ("wait=zero(rent_cpu_only=2)", "wait.zero.rent_cpu_only: 2 must be true or false"),
        ("wait=budget(0.1,shape=round)", "wait.budget.shape: 'round' must be constant, runtime"),
        ("wait=zero(max_wait=1m,max_wait=2m)", "wait.zero.max_wait: is given twice"),
        ("wait=zero(estimate_error=1)", "wait.zero.estimate_error: unknown option"),
        ("wait=comptue(1)", "wait: 'comptue' is not a policy of the axis wait; did you mean `compute`?"),
        ("wiat=zero", "unknown axis 'wiat'; did you mean `wait`?"),
        ("compute(0.1)", "'compute(0.1)' has no axis"),
        ("wait=compute(0.1", "'wait=compute(0.1' has unbalanced parentheses"),
        ("wait=zero)(", "'wait=zero)(' has unbalanced parentheses"),
        ("wait=a b", "wait: 'a b' is not a policy"),
        ("wait=zero,wait=never", "wait: is given twice"),
        ("depth=0", "depth: '0' is not a whole number of at least 1"),
        ("depth=x", "depth: 'x' is not a whole number of at least 1"),
        ("order=fifo(x=1)", "order.fifo.x: unknown option; this policy has no options"),
        (
            "order=fair_share(shares=vision)",
            "order.fair_share.shares.vision: 'vision' is not a number above 0",
        ),
        ("order=fair_share(shares=vision=0)", "order.fair_share.shares.vision: '0' is not a number above 0"),
        ("order=fair_share(shares=a b=1)", "order.fair_share.shares['a b']: 'a b' is not a valid name"),
        ("order=fair_share(7)", "order.fair_share.half_life: '7' is not a duration"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(text: str, problem: str) -> None:
    (line,) = refused(text)
    assert line.startswith(f"--policy: {problem}")


def test_all_problems_are_told_at_once() -> None:
    assert len(refused("wait=compute(x),order=zzz,place=best_fit(a=1)")) == 3


def test_a_policy_of_an_installed_package_takes_any_options_and_the_common_ones() -> None:
    policies = read_policies("wait=mine(soon=5m,n=3,f=0.5,yes=true,max_wait=1h)", known={"wait.mine"})
    options: dict[str, int | float | str | bool] = {
        "soon": "5m",
        "n": 3,
        "f": 0.5,
        "yes": True,
        "max_wait": HOUR,
    }
    assert policies.wait == Choice("mine", options)


def test_only_a_study_takes_an_error_of_estimates() -> None:
    policies = read_policies("wait=compute(0.1,estimate_error=0.25)", study=True)
    assert policies.wait.options == {"coefficient": 0.1, "estimate_error": 0.25}
    assert "estimate_error=0.25" in write_policies(policies)


def test_a_range_is_even_points_with_both_ends() -> None:
    steps = points("wait=constant(0.1h..4h/14),order=fifo", "--sweep")
    assert len(steps) == 14
    assert steps[0] == ("wait=constant(6m),order=fifo", "wait=constant(0.1h),order=fifo", "0.1h")
    assert steps[1] == ("wait=constant(24m),order=fifo", "wait=constant(0.4h),order=fifo", "0.4h")
    assert steps[-1].line == "wait=constant(4h),order=fifo"
    numbers = [step.line for step in points("wait=compute(0.01..0.2/3)", "")]
    assert numbers == ["wait=compute(0.01)", "wait=compute(0.105)", "wait=compute(0.2)"]
    assert points("wait=compute(0.1,max_queue=10..30/3)", "")[1].line == "wait=compute(0.1,max_queue=20)"


def test_steps_that_do_not_come_out_even_are_exact_to_the_millisecond_and_short_for_people() -> None:
    assert points("wait=constant(0.1h..4h/8)", "")[1] == (
        "wait=constant(2365.714s)",
        "wait=constant(0.6571h)",
        "0.6571h",
    )
    assert points("wait=compute(0.01..0.2/8)", "")[1][:2] == (
        "wait=compute(0.037142857143)",
        "wait=compute(0.03714)",
    )
    assert points("wait=constant(1h30m..2h30m/3)", "")[1].value == "2h"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("wait=constant(1h..2h)", "has a range without a number of points; write it as 0.1h..4h/8"),
        ("wait=compute(1..2/3,max_queue=1..3/3)", "has more than one range"),
        ("wait=compute(1..2/1)", "'1' is not a number of points from 2"),
        ("wait=compute(1..2/x)", "'x' is not a number of points"),
        ("wait=constant(1..4h/3)", "only one end has a unit"),
        ("wait=constant(ah..4h/3)", "'ah' is not a duration"),
    ],
)
def test_a_range_that_is_none_is_told(text: str, problem: str) -> None:
    with pytest.raises(BadForm, match=problem):
        points(text, "--sweep")


@given(st.integers(min_value=0, max_value=10**18))
def test_a_short_duration_is_exact(nanoseconds: int) -> None:
    assert parse_duration(short_duration(nanoseconds)) == nanoseconds


def test_a_short_duration_is_what_a_person_would_write() -> None:
    texts = ["0s", "1h", "90s", "30m", "0.5556h", "2d", "0.25s", "1ns"]
    assert [short_duration(parse_duration(text)) for text in texts][1:] == texts[1:]


def test_bounds_of_an_installed_wait_are_written_as_they_are_read() -> None:
    known = (*OPTIONS, "wait.half")
    written = "wait=half(max_wait=90m,max_queue=3,share=0.5),backfill=out_of_order,order=fifo,place=best_fit"
    assert write_policies(read_policies(written, known=known)) == written
