"""Starts two clusters to experiment with by hand: `python -m tests.support.kube`.

They are those of the tests, `onprem` and `cloud`, with some nodes that KWOK simulates. It writes a kubeconfig with a
context for each, named as by `kind`. Everything is gone when it ends.
"""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

from tests.support.kube.binaries import NotBuilt
from tests.support.kube.identities import write_kubeconfig
from tests.support.kube.several import clusters


def main() -> int:
    """Start the clusters, print a line, and keep them until interrupted or terminated."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.kube", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, default=Path("kubeconfig"), help="the file to write")
    parser.add_argument("--nodes", type=int, default=2, help="nodes of each cluster")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
    try:
        with clusters("onprem", "cloud") as both:
            for each in both:
                each.add_nodes(asked.nodes, cpu="4", memory="16Gi", gpu=1)
            path = write_kubeconfig(
                asked.kubeconfig, [replace(each.access, context=f"kind-{each.name}") for each in both]
            )
            _say(f"two clusters are up: export KUBECONFIG={path.resolve()}")
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0
    except NotBuilt as error:
        _say(str(error))
        return 2


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - output for the user


if __name__ == "__main__":
    sys.exit(main())
