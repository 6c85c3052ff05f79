"""Runs Ray like a batch scheduler: one process per task, output in files. Runs in the peers' environment.

`ray_tasks.py FOLDER COUNT` prints one line of JSON: seconds from the first submission until every result is known.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import ray

SLOTS = 2


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    @ray.remote  # type: ignore[untyped-decorator]
    def run(index: int) -> int:
        with (folder / f"{index}.out").open("wb") as out, (folder / f"{index}.err").open("wb") as err:
            return subprocess.run(["/bin/true"], stdout=out, stderr=err, check=False).returncode

    ray.get([run.remote(-1 - warm) for warm in range(20 * SLOTS)])
    begin = time.monotonic()
    codes = ray.get([run.remote(index) for index in range(count)])
    seconds = time.monotonic() - begin
    if any(codes):
        raise SystemExit("a task failed")
    print(json.dumps({"seconds": seconds}))
    ray.shutdown()


if __name__ == "__main__":
    main()
