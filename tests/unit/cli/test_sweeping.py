"""What a sweep shows."""

from spillover.cli.sweeps import curve_names


def test_a_curve_is_named_by_what_all_of_its_points_are() -> None:
    sweeps = ["wait=constant(0.1h..4h/8)", "wait=compute(0.01..0.2/8,max_queue=30),backfill=strict"]
    assert curve_names(sweeps) == ["constant", "compute(max_queue=30), strict"]


def test_curves_of_one_name_are_named_as_they_were_written() -> None:
    sweeps = ["wait=constant(1h..2h/2)", "wait=constant(2h..4h/8)", "wait=zero(max_queue=1..3/3)"]
    assert curve_names(sweeps) == [*sweeps[:2], "zero"]
