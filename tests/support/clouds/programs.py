"""Machines of the programs in examples/providers, which fail in the ways that a test asks for.

The server runs this file: `python programs.py create|list|destroy`. It notes the call, and then calls the example, perhaps
late, twice, or without telling its answer. So a real server meets the faults of a cloud, with agents as real processes.

Unlike the example, this cloud knows an order by its token alone, as most clouds do: the same name with another token is
another machine.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

EXAMPLES: Final = Path(__file__).parents[3] / "examples" / "providers"
FAULTS: Final = {
    "create": ("lost request", "lost answer", "late", "twice", "not now", "no capacity", "lost tags"),
    "list": ("lost request", "late", "partial", "lag"),
    "destroy": ("lost request", "lost answer", "late", "twice", "refused"),
}
LATE: Final = 3.0
"""Most seconds by which a call is late."""


class FaultyPrograms:
    """What a test knows of such a cloud."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines = folder / "machines"
        self.machines.mkdir(parents=True)
        spill, sleepy = Path(sys.executable).with_name("spill"), folder / "sleepy"
        sleepy.write_text(
            f'#!/bin/sh\nuntil [ -e {folder / "awake"} ]; do sleep 0.05; done\nexec {spill} "$@"\n'
        )
        sleepy.chmod(0o700)
        self.mend()

    def options(self, *, agent: Sequence[str] = (), who: str = "somebody") -> dict[str, Any]:
        """Return the options of the provider `command` for a server with a name; agents get more options."""
        spill = Path(sys.executable).with_name("spill")
        env = {"CLOUD": str(self.folder), "MACHINES": str(self.machines), "SPILL": str(spill)}
        env |= {"AGENT": json.dumps([*agent]), "WHO": who}
        calls = {each: [sys.executable, "-I", "-S", __file__, each] for each in FAULTS}
        return {**calls, "env": env, "timeout": "30s"}

    def fail(
        self,
        chance: float = 0.0,
        *,
        down: bool = False,
        hold: str = "",
        quota: int | None = None,
        sleepy: bool = False,
    ) -> None:
        """Let calls fail by chance, or all of them, or let calls of one kind wait until `go`.

        There may be a quota of machines. Agents of sleepy machines start only when they are told to wake up.
        """
        self._write({"chance": chance, "down": down, "hold": hold, "quota": quota, "sleepy": sleepy})

    def mend(self) -> None:
        """End all faults, but those of calls that wait already."""
        self._write({})

    def go(self) -> None:
        """Let the calls go on that wait."""
        (self.folder / "go").touch()

    def clear(self) -> None:
        """End all machines that a test has left, because it failed."""
        from tests.support.processes import processes_of  # noqa: PLC0415 - the server runs this file alone

        for pid in processes_of(self.machines):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wake(self) -> None:
        """Let the agents of sleepy machines start."""
        (self.folder / "awake").touch()

    def vanish(self, machine: str) -> None:
        """Take a machine away, without a word to anybody."""
        from tests.support.processes import nothing_left, processes_of  # noqa: PLC0415 - the server runs this file alone

        folder = self.machines / machine
        for pid in processes_of(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        nothing_left(folder)
        shutil.rmtree(folder)

    def asked(self, what: str) -> dict[str, set[str]]:
        """Return for which machines each server made calls of one kind."""
        path = self.folder / "asked"
        found: dict[str, set[str]] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            who, call, id_ = line.split()
            if call == what:
                found.setdefault(who, set()).add(id_)
        return found

    def calls(self, what: str = "") -> int:
        """Return how many calls arrived, of one kind or of all."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(not what or line == what for line in lines)

    def there(self) -> list[str]:
        """Return the machines that exist."""
        return sorted(each.name for each in self.machines.glob("[!.]*"))

    def made(self) -> dict[str, set[str]]:
        """Return all machines that were ever made, by the name that the server gave them."""
        path = self.folder / "made"
        found: dict[str, set[str]] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            found.setdefault(name_of(line), set()).add(line)
        return found

    def _write(self, faults: dict[str, Any]) -> None:
        new = self.folder / "faults.new"
        new.write_text(json.dumps(faults))
        new.rename(self.folder / "faults.json")


def main(what: str) -> int:
    """Carry out a call with the fault that it meets; return its exit code."""
    cloud, asked = Path(os.environ["CLOUD"]), sys.stdin.read()
    with (cloud / "calls").open("a") as calls:
        calls.write(f"{what}\n")
    faults = json.loads((cloud / "faults.json").read_text())
    if faults.get("down"):
        return 1
    if faults.get("hold") == what:
        while not (cloud / "go").exists():
            time.sleep(0.02)
    seen = False
    if what == "create":
        asked = by_token(asked)
        id_ = json.loads(asked)["name"]
        seen = note_order(cloud / "orders", id_)
        note_ids(cloud, what, [id_])
        if not within_quota(cloud / "within", id_, faults.get("quota")):
            return 11
        if faults.get("sleepy"):
            os.environ["SPILL"] = str(cloud / "sleepy")
    elif what == "destroy":
        note_ids(cloud, what, json.loads(asked)["ids"])
    dice = random.SystemRandom()
    fault = dice.choice(FAULTS[what]) if dice.random() < faults.get("chance", 0) else ""
    match fault:
        case "lost request":
            return 1
        case "not now":
            return 75
        case "no capacity":
            return 1 if seen else 10  # an earlier call with this token may be under way
        case "refused":
            sys.stdout.write(json.dumps({"failed": dict.fromkeys(json.loads(asked)["ids"], "protected")}))
            return 0
        case "late":
            time.sleep(dice.uniform(0, LATE))
        case "twice":
            call(what, asked)
        case _:
            pass
    code, answer = call(what, asked)
    if fault == "lost tags":
        (Path(os.environ["MACHINES"]) / json.loads(asked)["name"] / "tags.json").unlink(missing_ok=True)
    if fault == "partial":
        shown = json.loads(answer)["machines"]
        answer = json.dumps({"machines": shown[::2], "whole": False, "why": "a zone did not answer"})
    if what == "list":
        answer = lagging(cloud / "listed", answer, lags=fault == "lag")
    if fault == "lost answer":
        return 1
    sys.stdout.write(answer)
    return code


def call(what: str, asked: str) -> tuple[int, str]:
    """Call the example; return its exit code and what it says."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", EXAMPLES / f"{what}.py"],
        input=asked,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    answer = done.stdout
    if what == "create" and (Path(os.environ["MACHINES"]) / (id_ := json.loads(asked)["name"])).exists():
        with (Path(os.environ["CLOUD"]) / "made").open("a") as made:
            made.write(f"{id_}\n")
    if what == "list" and done.returncode == 0:
        listed = json.loads(answer)["machines"]
        answer = json.dumps({"machines": [each | {"name": name_of(each["name"])} for each in listed]})
    return done.returncode, answer


def by_token(asked: str) -> str:
    """Return an order for a machine whose id follows from its token too."""
    order = json.loads(asked)
    token = hashlib.sha256(order["token"].encode()).hexdigest()[:8]
    agent = [*order["agent_options"], *json.loads(os.environ["AGENT"])]
    return json.dumps(order | {"name": f"{order['name']}.{token}", "agent_options": agent})


def lagging(path: Path, answer: str, *, lags: bool) -> str:
    """Return a listing; one that lags is that of the call before."""
    before = path.read_text() if lags and path.exists() else answer
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(answer)
    new.rename(path)
    return before


def within_quota(path: Path, id_: str, quota: int | None) -> bool:
    """Return whether a machine may be there beside those that are, or that other calls are about to create."""
    if quota is None:
        return True
    machines = Path(os.environ["MACHINES"])
    with path.open("a+") as within:
        fcntl.flock(within, fcntl.LOCK_EX)
        if (machines / id_).exists():
            return True
        within.seek(0)
        coming = {each for each in within.read().split() if not was_made(path.with_name("made"), each)}
        if len(coming | {each.name for each in machines.glob("[!.]*")} | {id_}) > quota:
            return False
        within.write(f"{id_}\n")
    return True


def was_made(path: Path, id_: str) -> bool:
    """Return whether a machine was ever made."""
    return path.exists() and id_ in path.read_text().splitlines()


def note_ids(cloud: Path, what: str, ids: Sequence[str]) -> None:
    """Note for which machines a server makes a call."""
    with (cloud / "asked").open("a") as asked:
        asked.write("".join([f"{os.environ['WHO']} {what} {id_}\n" for id_ in ids]))


def note_order(path: Path, id_: str) -> bool:
    """Note an order; return whether there was one with the same token before."""
    with path.open("a+") as orders:
        fcntl.flock(orders, fcntl.LOCK_EX)
        orders.seek(0)
        seen = id_ in orders.read().splitlines()
        orders.write(f"{id_}\n")
    return seen


def name_of(id_: str) -> str:
    """Return the name that the server gave to a machine."""
    return id_.partition(".")[0]


def machine_of(id_: str) -> str:
    """Return which machine of its server one is, by its name `spill-OWNER-MACHINE`."""
    return name_of(id_).split("-", 2)[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
