"""Runs Dask like a batch scheduler: one process per task, output in files. Runs in the peers' environment.

`dask_tasks.py FOLDER COUNT` prints one line of JSON: seconds from the first submission until every result is known.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from distributed import Client, LocalCluster

SLOTS = 2


def run(folder: str, index: int) -> int:
    with (Path(folder) / f"{index}.out").open("wb") as out, (Path(folder) / f"{index}.err").open("wb") as err:
        return subprocess.run(["/bin/true"], stdout=out, stderr=err, check=False).returncode


def main() -> None:
    folder, count = sys.argv[1], int(sys.argv[2])
    with (
        LocalCluster(n_workers=SLOTS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(run, [folder] * 40, range(-40, 0), pure=False))
        begin = time.monotonic()
        codes = client.gather(client.map(run, [folder] * count, range(count), pure=False))
        seconds = time.monotonic() - begin
    if any(codes):
        raise SystemExit("a task failed")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
