"""Plays many stories of odd input, and prints the shortest form of the first that fails."""

import argparse
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Sequence

import structlog
from hypothesis.errors import HypothesisWarning

from tests.support.inputs.source import explore
from tests.support.inputs.sources import SOURCES


def main(words: Sequence[str] | None = None) -> int:
    """Play the stories of each source; return 1 if one fails."""
    options = _options().parse_args(words)
    warnings.simplefilter("ignore", HypothesisWarning)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for name in options.source or SOURCES:
        began = time.monotonic()
        print(f"{name}: {options.seeds} stories, drawn from {options.first}", flush=True)  # noqa: T201
        try:
            explore(SOURCES[name], options.seeds, options.first)
        except Exception as error:  # noqa: BLE001 - any error is reported
            print("".join(traceback.format_exception(error)))  # noqa: T201
            again = f"python -m tests.support.inputs --source {name} --seeds {options.seeds} --first {options.first}"
            print(f"BROKEN  {error}\nagain:  {again}")  # noqa: T201
            return 1
        print(f"{name}: all is well, after {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="inputs", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many stories of each source")
    parser.add_argument("--first", type=int, default=1, help="the number that they are drawn from")
    parser.add_argument(
        "--source", action="append", choices=sorted(SOURCES), help="only this one; may be given several times"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
