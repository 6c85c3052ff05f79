"""`python -m bench`: runs all measurements, or the named ones, one after the other.

Prints the tables. If nothing is left out, also writes them to bench/results/latest.md, with the command and the
machine.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.reporting import Report, as_markdown, machine, tell

TOPICS: Final = (
    "throughput",
    "agent_tasks",
    "server_cost",
    "many_agents",
    "calls",
    "stealing",
    "gangs",
    "submissions",
    "scheduling",
    "matching",
    "pools",
    "pages",
    "pauses",
    "memory",
    "million",
    "startup",
    "simulator",
    "instructions",
    "backfill",
    "starts",
    "kubernetes",
)
RESULTS: Final = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Run each topic as a separate program. Its report says which goals hold."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Spillover, and compare it with floors and with other schedulers.",
    )
    parser.add_argument(
        "topics", nargs="*", metavar="TOPIC", help=f"one of {', '.join(TOPICS)}; default: all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller and fewer rounds; do not publish such results"
    )
    parser.add_argument("--long", action="store_true", help="also run measurements that take minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to FILE")
    given = parser.parse_args()
    unknown = [topic for topic in given.topics if topic not in TOPICS]
    if unknown:
        parser.error(f"there is no topic {unknown[0]!r}; known: {', '.join(TOPICS)}")
    head = f"`make bench` on {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC: {machine()}\n"
    print(head, flush=True)
    RESULTS.mkdir(exist_ok=True)
    reports: list[Report] = []
    for topic in given.topics or TOPICS:
        tell(topic)
        figures = RESULTS / f"{topic}.json"
        command = [sys.executable, "-m", f"bench.{topic}", "--json", str(figures)]
        done = subprocess.run(
            [*command, *(["--quick"] if given.quick else []), *(["--long"] if given.long else [])],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            print(f"{topic} failed: see above", file=sys.stderr)
            return 2
        reports += msgspec.json.decode(figures.read_bytes(), type=list[Report])
        print(as_markdown(reports[-1]), flush=True)
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(reports)))
    if not given.quick and not given.topics:
        text = "\n".join([head, *(as_markdown(report) for report in reports)])
        (RESULTS / "latest.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
