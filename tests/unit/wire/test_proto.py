"""The committed messages are those of the committed protocol."""

import subprocess
import sys
from pathlib import Path

import spillover

SOURCE = Path(spillover.__file__).parents[1]
PROTO = "spillover/wire/agents.proto"


def test_the_generated_messages_have_not_drifted_from_the_protocol(tmp_path: Path) -> None:
    words = [f"-I{SOURCE}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(SOURCE / PROTO)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
    for name in ("agents_pb2.py", "agents_pb2.pyi"):
        generated = (tmp_path / "spillover/wire" / name).read_text()
        committed = (SOURCE / "spillover/wire" / name).read_text()
        assert generated == committed, f"run `make proto`: {name} is not what {PROTO} says"
