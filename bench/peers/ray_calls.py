"""Measures Ray: calls of an empty function, and the start latency of a call. Runs in the peers' environment.

`ray_calls.py COUNT SAMPLES` prints one line of JSON: seconds for COUNT calls, and milliseconds from submission to start
of SAMPLES single calls on idle workers.
"""

import json
import sys
import time

import ray

SLOTS = 2


def _clock() -> float:
    return time.monotonic()


def main() -> None:
    count, samples = int(sys.argv[1]), int(sys.argv[2])
    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    nothing = ray.remote(lambda: None)
    clock = ray.remote(_clock)
    ray.get([nothing.remote() for _ in range(1000)])
    begin = time.monotonic()
    ray.get([nothing.remote() for _ in range(count)])
    seconds = time.monotonic() - begin
    starts = []
    for _ in range(samples):
        sent = time.monotonic()
        starts.append((ray.get(clock.remote()) - sent) * 1e3)
    print(json.dumps({"seconds": seconds, "starts": starts}))
    ray.shutdown()


if __name__ == "__main__":
    main()
