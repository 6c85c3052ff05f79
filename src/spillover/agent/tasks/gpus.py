"""Finds the GPUs of a machine."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

PATIENCE: Final = 30.0
"""Seconds that nvidia-smi may take."""
NVIDIA: Final = re.compile(r"^GPU (\d+):", re.MULTILINE)
DEVICES: Final = Path("/dev")
AMD_NODES: Final = Path("/sys/class/kfd/kfd/topology/nodes")


def find(devices: Path = DEVICES, amd_nodes: Path = AMD_NODES) -> tuple[str, ...]:
    """Return the numbers of the GPUs of this machine, as the vendors' libraries count them."""
    program = shutil.which("nvidia-smi")
    if program is not None:
        try:
            done = subprocess.run(
                [program, "-L"], capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            pass  # a driver that hangs must not block the agent
        else:
            if done.returncode == 0 and (found := tuple(NVIDIA.findall(done.stdout))):
                return found
    if nvidia := sorted(
        int(each.name[6:]) for each in devices.glob("nvidia[0-9]*") if each.name[6:].isdigit()
    ):
        return tuple(map(str, nvidia))
    if (devices / "kfd").exists():
        return tuple(str(number) for number in range(_amd(amd_nodes)))
    return ()


def _amd(nodes: Path) -> int:
    """Count the nodes of AMD's topology that are GPUs. CPUs are nodes too, without SIMD units."""
    count = 0
    for properties in nodes.glob("*/properties"):
        try:
            text = properties.read_text()
        except OSError:
            continue
        count += any(line.startswith("simd_count ") and line.split()[1] != "0" for line in text.splitlines())
    return count


def named(count: int | None, found: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the GPUs to use: as many as configured, or all that were found."""
    if count is None:
        return found
    return found[:count] if count <= len(found) else tuple(str(number) for number in range(count))
