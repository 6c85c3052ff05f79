"""Measures Dask: calls of an empty function, and the start latency of a call. Runs in the peers' environment.

`dask_calls.py COUNT SAMPLES` prints one line of JSON: seconds for COUNT calls, and milliseconds from submission to start of
SAMPLES single calls on idle workers.
"""

import json
import sys
import time

from distributed import Client, LocalCluster

SLOTS = 2


def main() -> None:
    count, samples = int(sys.argv[1]), int(sys.argv[2])
    with (
        LocalCluster(n_workers=SLOTS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(lambda _: None, range(1000), pure=False))
        begin = time.monotonic()
        client.gather(client.map(lambda _: None, range(count), pure=False))
        seconds = time.monotonic() - begin
        starts = []
        for _ in range(samples):
            sent = time.monotonic()
            starts.append((client.submit(time.monotonic, pure=False).result() - sent) * 1e3)
    print(json.dumps({"seconds": seconds, "starts": starts}))


if __name__ == "__main__":
    main()
