"""Defines the spill.yaml and the jobs of the demo, and when each job is submitted.

Seconds stand for hours here. A rented machine costs ten cents a second, so that these short jobs have readable costs.
The wait lets some jobs start on owned capacity and makes others spill over. The cloud has no machine when the demo
begins: its pool rents processes of this machine while jobs need them, and gives them back.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

CURRENCY: Final = "USD"
OWNED: Final = "onprem"
RENTED: Final = "cloud"
OWNED_CPUS: Final = 2
MACHINE_CPUS: Final = 2
MOST_MACHINES: Final = 2
SECOND_PRICE: Final = 0.1
"""What a machine costs a second."""
BOOT: Final = 1.0
"""Seconds before the agent of a machine starts. The agent then needs about another second to join."""
PATIENCE: Final = 1.6
"""Coefficient of the wait: a job of C CPUs with an estimate of r seconds waits at most this times C times r."""

CONFIG: Final = f"""\
apiVersion: spillover/v1
kind: Config
currency: {CURRENCY}
policy:
  order: fifo
  backfill: out_of_order
  place: best_fit
  wait: {{compute: {{coefficient: {PATIENCE}, min_wait: 1s}}}}
clusters:
- name: {OWNED}
  kind: agents
  role: owned
  local: [{{name: n1, cpu: {OWNED_CPUS}, memory: 4Gi}}]
- name: {RENTED}
  kind: agents
  role: rented
  pool:
    provider: {{process: {{boot: {BOOT:g}s}}}}
    offers: [{{type: small, cpu: {MACHINE_CPUS}, memory: 4Gi, hour: {SECOND_PRICE * 3600:g}}}]
    billing: {{step: 1s}}
    max: {MOST_MACHINES}
    boot: 2s
agents: {{on_shutdown: stop}}
"""


class Wave(NamedTuple):
    """Jobs that are submitted together."""

    at: float
    """Seconds after the first submission."""
    documents: list[dict[str, Any]]


def waves() -> Iterator[Wave]:
    """Yield all submissions: more than the owned CPUs can run for five seconds, then less. Not sorted by time."""
    yield Wave(0.0, [_job("prepare", 0.8), _job("report", 0.4, after=[{"job": "prepare", "on": "success"}])])
    yield Wave(0.3, [_job("sweep", 0.7, array="1-4")])
    for number in range(6):
        yield Wave(0.8 + number * 0.9, list(_mixed(number)))
    yield Wave(4.0, [_job("urgent", 1.0, cpu=2, burst="always"), _job("private", 1.5, burst="never")])
    yield Wave(4.5, [_job("broken", 0.5, code=3)])
    for number in range(4):
        yield Wave(8.5 + number, [_job(f"late-{number + 1}", 1.0), _job(f"check-{number + 1}", 0.5)])


def _mixed(number: int) -> Iterator[dict[str, Any]]:
    """Yield four jobs: a short one, two of medium length, and one that is long and wide."""
    yield _job(f"quick-{number + 1}", 0.3 + number % 3 * 0.1)
    yield _job(f"fit-{number + 1}", 0.6 + number % 4 * 0.2)
    yield _job(f"render-{number + 1}", 1.0 + number % 2 * 0.4)
    yield _job(f"train-{number + 1}", 1.5 + number % 3 * 0.5, cpu=2)


def _job(name: str, runs: float, *, cpu: int = 1, code: int = 0, **more: Any) -> dict[str, Any]:
    """Return a job that sleeps for exactly its estimate."""
    ends = f"; exit {code}" if code else ""
    return {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": name, "project": "demo"},
        "spec": {
            "run": f"sleep {runs:g}{ends}",
            "estimate": f"{runs:g}s",
            "walltime": "30s",
            "resources": {"cpu": cpu, "memory": "64Mi"},
            **more,
        },
    }
