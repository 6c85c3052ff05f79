"""Soaks a server for some minutes and prints a report; exit code 1 if a check failed."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support.soak.story import Wanted, soak
from tests.support.soak.verdict import table


def main(words: Sequence[str] | None = None) -> int:
    """Run the soak and print the report."""
    options = _options().parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up before the exit
    with ExitStack() as stack:
        folder = options.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spill-soak-")))
        report = soak(folder.absolute(), Wanted(options.minutes * 60, options.pause, options.seed), _tell)
    for line in (*table(report.rows), *report.details):
        print(line)  # noqa: T201
    return 0 if report.well else 1


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="how long there is load (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn (default: 1)")
    parser.add_argument(
        "--pause",
        type=float,
        default=1.0,
        help="seconds that the event loop may pause at the most (default: 1)",
    )
    parser.add_argument("--keep", type=Path, help="folder to put data and logs into, which stays")
    return parser


if __name__ == "__main__":
    sys.exit(main())
