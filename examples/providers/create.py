#!/usr/bin/env python3
"""Creates a machine: here a process. For a cloud, call its command line with the name or the token of the order."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

order = json.load(sys.stdin)
machines = Path(os.environ["MACHINES"])
machines.mkdir(mode=0o700, parents=True, exist_ok=True)
folder = machines / order["name"]

# Exit codes from 10 on say that this machine surely does not exist.
spill = os.environ.get("SPILL", "spill")
if shutil.which(spill) is None:
    print(f"there is no program {spill}; set SPILL in `env` to its path", file=sys.stderr)
    sys.exit(12)
if not folder.exists() and len(list(machines.glob("[!.]*"))) >= int(os.environ.get("MOST", "100")):
    print("no capacity: there are as many machines as MOST allows", file=sys.stderr)
    sys.exit(10)

# The server repeats an order if it does not know the answer, perhaps while the first one still runs. So each step does
# nothing if it was done before: the folder appears once, with its tags, and the lock starts one process.
if not folder.exists():
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=machines))
    (new / "tags.json").write_text(json.dumps(order["tags"]))
    (new / "join.json").write_text(json.dumps(order["join"]))
    try:
        new.rename(folder)
    except OSError:  # the same order, at the same time
        for left in new.iterdir():
            left.unlink()
        new.rmdir()

with (folder / "lock").open("w") as lock, (folder / "agent.log").open("ab") as log:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # it runs
    else:
        options = ["--join", str(folder / "join.json"), "--data", str(folder), *order["agent_options"]]
        agent = subprocess.Popen(
            [spill, "agent", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],  # the lock is held for as long as the agent runs
        )
        (folder / "pid").write_text(str(agent.pid))

print(json.dumps({"id": order["name"]}))
