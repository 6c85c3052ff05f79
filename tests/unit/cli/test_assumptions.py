"""What `spill why --if` takes."""

import pytest

from spillover.cli.assumptions import read_assumption
from spillover.forms.problems import BadForm
from spillover.wire.api import AmountsDoc, MachinesDoc, WhatIf


def test_amounts_policies_and_machines_are_assumed_together() -> None:
    texts = ["cpu=1.5", "gpu=2", "policy=wait=compute(0.1),order=sjf", "machines=onprem:2", "memory=8Gi"]
    assert read_assumption(texts) == WhatIf(
        AmountsDoc("1.5", "8Gi", 2), "wait=compute(0.1),order=sjf", [MachinesDoc("onprem", 2)]
    )


def test_machines_have_a_size() -> None:
    assert read_assumption(["machines=onprem:3x48cpu,8gpu"]).machines == [
        MachinesDoc("onprem", 3, AmountsDoc("48000m", None, 8))
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "cpu",
            "'cpu' is not an assumption; write NAME=VALUE with one of cpu, memory, gpu, policy, machines",
        ),
        ("speed=2", "is not an assumption"),
        ("gpu=many", "'many' is not a number of GPUs; write gpu=1 (at character 5)"),
        ("machines=2", "is not a number of machines; write machines=CLUSTER:2"),
        ("machines=onprem:2xfast", "at character 10"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(text: str, told: str) -> None:
    with pytest.raises(BadForm) as bad:
        read_assumption([text])
    assert [told in str(problem) for problem in bad.value.problems] == [True], str(bad.value)
