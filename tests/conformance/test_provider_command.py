"""The suite for providers on the programs of examples/providers, with a program around them that fails on request."""

import sys
from pathlib import Path

import pytest

from spillover.providers.command.provider import CommandForm, CommandKind
from spillover.testing.provider_suite import Fault, OpenProvider, ProviderSuite, an_opening

EXAMPLE = Path(__file__).parents[2] / "examples/providers"
AROUND = """\
import json, os, pathlib, subprocess, sys
program, fault = sys.argv[1], pathlib.Path("FAULT")
asked = fault.read_text() if fault.exists() else ""
run = [sys.executable, "-I", "-S", f"EXAMPLE/{program}.py"]
codes = {"capacity": 10, "quota": 11, "invalid": 12, "auth": 13, "throttled": 75, "unreachable": 75}
if asked == "unreachable" or (program == "create" and asked in codes):
    sys.exit(f"{asked} was asked for") if program != "create" else print(f"{asked}, as asked", file=sys.stderr)
    sys.exit(codes[asked])
if program == "create" and asked.startswith("lost_"):
    fault.unlink()
    if asked == "lost_answer":
        subprocess.run(run, stdout=subprocess.DEVNULL)
    sys.exit(1)
if program == "list" and asked == "partial":
    print(json.dumps({"machines": [], "whole": False, "why": "zone b does not answer"}))
    sys.exit()
if program == "destroy" and asked == "refused_destroy":
    print(json.dumps({"failed": {id_: "it is protected" for id_ in json.load(sys.stdin)["ids"]}}))
    sys.exit()
os.execv(sys.executable, run)
"""


class TestCommand(ProviderSuite):
    faults = frozenset(Fault) - {Fault.TAKEN_BACK}
    remembers = False
    fault: Path
    machines: Path

    @pytest.fixture
    def open_provider(self, tmp_path: Path) -> OpenProvider:
        self.fault, self.machines = tmp_path / "fault", tmp_path / "machines"
        around, stub = tmp_path / "around.py", tmp_path / "spill"
        around.write_text(AROUND.replace("FAULT", str(self.fault)).replace("EXAMPLE", str(EXAMPLE)))
        # Real agents would take a second each.
        stub.write_text("#!/bin/sh\nexec sleep 1000\n")
        stub.chmod(0o700)
        create, listing, destroy = (
            [sys.executable, "-I", "-S", str(around), each] for each in ("create", "list", "destroy")
        )
        env = {"MACHINES": str(self.machines), "SPILL": str(stub)}
        form = CommandForm(create, listing, destroy, env)
        assert not CommandKind().check(form, [])
        return lambda owner: CommandKind().open(form, an_opening(tmp_path / "data", owner))

    def provoke(self, fault: Fault) -> None:
        if fault is Fault.LOST_TAGS:
            for each in self.machines.glob("*/tags.json"):
                each.unlink()
        else:
            self.fault.write_text(fault)

    def mend(self) -> None:
        self.fault.unlink(missing_ok=True)
