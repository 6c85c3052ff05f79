"""The committed messages are those of the committed protocols, which are published."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import spillover

SOURCE = Path(spillover.__file__).parents[1]
PROTOS = ("agents", "clusters", "jobs")


@pytest.mark.parametrize("name", PROTOS)
def test_the_generated_messages_have_not_drifted_from_the_protocol(name: str, tmp_path: Path) -> None:
    proto = f"spillover/wire/{name}.proto"
    words = [f"-I{SOURCE}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(SOURCE / proto)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
    for file in (f"{name}_pb2.py", f"{name}_pb2.pyi"):
        generated = (tmp_path / "spillover/wire" / file).read_text()
        committed = (SOURCE / "spillover/wire" / file).read_text()
        assert generated == committed, f"run `make proto`: {file} is not what {proto} says"


def test_every_protocol_is_checked_for_that() -> None:
    assert {path.stem for path in (SOURCE / "spillover/wire").glob("*.proto")} == set(PROTOS)


def test_protocols_are_published_with_the_package(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=SOURCE.parent, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert {f"spillover/wire/{name}.proto" for name in PROTOS} <= set(ZipFile(wheel).namelist())
