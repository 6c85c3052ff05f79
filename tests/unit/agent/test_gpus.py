"""GPUs that a machine has."""

from pathlib import Path

import pytest

from spillover.agent.tasks import gpus


def programs(folder: Path, nvidia_smi: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    if nvidia_smi is not None:
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{nvidia_smi}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_the_makers_program_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "GPU 0: NVIDIA A100 (UUID: GPU-1)\\nGPU 1: NVIDIA A100 (UUID: GPU-2)\\n  MIG 1g.5gb Device 0: (UUID: x)"
    programs(tmp_path / "bin", f"printf '{lines}\\n'", monkeypatch)
    assert gpus.find(tmp_path) == ("0", "1")


def test_where_that_fails_device_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path / "bin", "exit 9", monkeypatch)
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpus.find(tmp_path) == ("0", "2", "10")


def test_gpus_of_amd_are_counted_without_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path / "bin", None, monkeypatch)
    (tmp_path / "kfd").touch()
    for number, simd in enumerate((0, 304, 304)):
        node = tmp_path / "nodes" / str(number)
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 8\nsimd_count {simd}\n")
    assert gpus.find(tmp_path, tmp_path / "nodes") == ("0", "1")


def test_a_machine_without_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path / "bin", None, monkeypatch)
    assert gpus.find(tmp_path) == ()


@pytest.mark.parametrize(
    ("count", "found", "used"),
    [
        (None, ("0", "2"), ("0", "2")),
        (1, ("0", "2"), ("0",)),
        (0, ("0", "2"), ()),
        (3, ("0", "2"), ("0", "1", "2")),
        (None, (), ()),
    ],
)
def test_what_is_told_goes_before_what_is_found(
    count: int | None, found: tuple[str, ...], used: tuple[str, ...]
) -> None:
    assert gpus.named(count, found) == used
