"""How busy the GPUs of tasks are, as a real program says that stands for nvidia-smi."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from spillover.agent.tasks import gpu_usage
from spillover.agent.tasks.gpu_usage import GpuMeter, sampled
from spillover.core.events import Lease, Usage
from spillover.model.ids import JobId
from spillover.model.units import SECOND

GIB = 1 << 30


def lease(job: str) -> Lease:
    return Lease(JobId(job), 1, 1)


class Machine:
    """A machine whose nvidia-smi says what a test wants, and a clock that moves ten seconds with each look at it."""

    def __init__(self, folder: Path) -> None:
        self.now = 0
        self.calls = folder / "calls"
        self.program = folder / "nvidia-smi"

    def says(self, *lines: str, then: str = "") -> None:
        printed = "\n".join(lines)
        self.program.write_text(
            f"#!/bin/sh\necho \"$@\" >> {self.calls}\ncat <<'END'\n{printed}\nEND\n{then}\n"
        )
        self.program.chmod(0o755)

    def clock(self) -> int:
        self.now += 10 * SECOND
        return self.now

    def called(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return Machine(tmp_path)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not happened():  # noqa: ASYNC110 - another program does what it waits for
            await asyncio.sleep(0.001)


async def closed(meter: GpuMeter) -> None:
    """Stop a meter, and wait for its end."""
    sampling = meter._sampling
    meter.close()
    if sampling is not None:
        await asyncio.gather(sampling, return_exceptions=True)


async def test_what_a_task_did_with_its_gpus_is_the_mean_of_samples(machine: Machine) -> None:
    machine.says("0, 80, 10240", "1, 20, 2048", "2, 100, 40960")
    meter = GpuMeter(machine.clock, first=0.001, every=0.001)
    meter.begin(lease("a"), ("0", "1"))
    await until(lambda: machine.called() > 2)
    used = meter.end(lease("a"), Usage(60 * SECOND, 1, 2))
    await closed(meter)
    assert used == Usage(60 * SECOND, 1, 2, 60 * SECOND, 120 * SECOND, 10 * GIB)
    assert machine.calls.read_text().splitlines()[0] == (
        "--query-gpu=index,utilization.gpu,memory.used --format=csv,noheader,nounits"
    )


async def test_one_program_samples_for_all_tasks_and_only_while_there_are_any(machine: Machine) -> None:
    machine.says("0, 50, 1024", "1, 0, 0")
    meter = GpuMeter(machine.clock, first=0.001, every=0.001)
    meter.begin(lease("none"), ())
    assert meter._sampling is None
    meter.begin(lease("a"), ("0",))
    sampling = meter._sampling
    meter.begin(lease("b"), ("1",))
    assert meter._sampling is sampling
    await until(lambda: machine.called() > 1)
    assert meter.end(lease("a"), Usage(SECOND)).gpu == SECOND // 2
    idle = meter.end(lease("b"), Usage(SECOND))
    assert (idle.gpu, idle.gpu_measured) == (0, SECOND)
    await until(lambda: meter._sampling is None)
    calls = machine.called()
    meter.begin(lease("c"), ("1",))
    await until(lambda: machine.called() > calls)
    await closed(meter)


@pytest.mark.parametrize(
    "said",
    ["0, [N/A], [N/A]", "No devices were found", "", "0, [Not Supported], 3", "1, 5, 5", "0, ", "0, 1, 2, 3"],
)
async def test_nothing_is_told_of_gpus_that_nobody_measured(machine: Machine, said: str) -> None:
    machine.says(said)
    meter = GpuMeter(machine.clock, first=0.001, every=0.001)
    meter.begin(lease("a"), ("0",))
    await until(lambda: machine.called() > 1)
    assert meter.end(lease("a"), Usage(SECOND, 1, 2)) == Usage(SECOND, 1, 2)
    await closed(meter)


async def test_a_program_that_fails_or_hangs_is_asked_less_and_less_often(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_usage, "PATIENCE", 0.02)
    monkeypatch.setattr(gpu_usage, "RARELY", 0.008)
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    machine.says("0, 50, 1024", then="exec sleep 60")
    meter = GpuMeter(machine.clock, first=0.0005, every=0.001)
    monkeypatch.setattr(asyncio, "sleep", noted)
    meter.begin(lease("a"), ("0",))
    async with asyncio.timeout(20):
        while len(pauses) < 6:
            await sleep(0.001)
    await closed(meter)
    assert pauses[:6] == [0.0005, 0.001, 0.002, 0.004, 0.008, 0.008]


def test_a_machine_without_nvidia_smi_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    meter = GpuMeter()
    meter.begin(lease("a"), ("0",))
    assert meter.end(lease("a"), Usage(5)) == Usage(5)


def test_lines_of_nvidia_smi_are_read() -> None:
    assert sampled("0, 87, 10240\n1, 0, 3\n2, [N/A], 7\n3, 101, [N/A]\n") == {
        "0": (87, 10 * GIB),
        "1": (0, 3 << 20),
        "3": (100, 0),
    }
