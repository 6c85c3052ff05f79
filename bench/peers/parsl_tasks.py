"""Runs Parsl's HighThroughputExecutor like a batch scheduler: one process per task, output in files.

`parsl_tasks.py FOLDER COUNT` prints one line of JSON: seconds from the first submission until every result is known.
Runs in the peers' environment.
"""

import json
import os
import sys
import time
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

SLOTS = 2


def run(folder: str, index: int) -> int:
    """Run one task. It imports what it needs, because Parsl sends it to a worker by value."""
    import subprocess  # noqa: PLC0415 - see above

    with open(f"{folder}/{index}.out", "wb") as out, open(f"{folder}/{index}.err", "wb") as err:  # noqa: PTH123 - see above
        return subprocess.run(["/bin/true"], stdout=out, stderr=err, check=False).returncode


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    executor = HighThroughputExecutor(
        label="local",
        max_workers_per_node=SLOTS,
        cores_per_worker=1,
        address="127.0.0.1",
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    with parsl.load(Config(executors=[executor], run_dir=str(folder / "runinfo"), strategy="none")):
        app = parsl.python_app(run)
        for warm in [app(str(folder), -1 - each) for each in range(20 * SLOTS)]:
            warm.result()
        begin = time.monotonic()
        codes = [each.result() for each in [app(str(folder), index) for index in range(count)]]
        seconds = time.monotonic() - begin
    if any(codes):
        raise SystemExit("a task failed")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
