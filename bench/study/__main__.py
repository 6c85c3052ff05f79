"""`python -m bench.study`: runs the simulations of docs/studies.md, and writes its tables.

Each part of the page is between `<!-- study: NAME -->` and `<!-- end -->`. Results are stored in
bench/results/study.jsonl.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Final

from bench.reporting import tell
from bench.study.chapters import CHAPTERS
from bench.study.simulating import Results
from spillover.sim.studies.workers import cores

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / "bench" / "results" / "study.jsonl"
PAGE: Final = ROOT / "docs" / "studies.md"


def main() -> int:
    """Simulate what is missing, chapter by chapter, and write the tables of those that are complete."""
    parser = argparse.ArgumentParser(prog="python -m bench.study", description=__doc__.splitlines()[0])
    parser.add_argument(
        "chapters", nargs="*", metavar="CHAPTER", help=f"one of {', '.join(CHAPTERS)}; default: all"
    )
    parser.add_argument(
        "--processes", type=int, default=cores(), help="worker processes; default: one for each core"
    )
    parser.add_argument(
        "--out", type=Path, default=KEPT, help="file for results; cases that it has are not simulated again"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write the tables to")
    parser.add_argument("--tables", action="store_true", help="only write tables of existing results")
    given = parser.parse_args()
    unknown = [name for name in given.chapters if name not in CHAPTERS]
    if unknown:
        parser.error(f"there is no chapter {unknown[0]!r}; known: {', '.join(CHAPTERS)}")
    given.out.parent.mkdir(exist_ok=True)
    results = Results(given.out)
    for name in given.chapters or CHAPTERS:
        chapter = CHAPTERS[name]
        missing = sorted({case.trace for case in chapter.cases if case.missing})
        if missing:
            tell(f"{name} is left out: {', '.join(missing)} is not beside the repository (../shared)")
            continue
        if not given.tables:
            tell(name)
            results.complete(chapter.cases, given.processes)
        if all(case in results for case in chapter.cases):
            table = chapter.table(results)
            print(f"## {name}\n\n{table}")
            _write(given.page, name, table)
    return 0


def _write(page: Path, name: str, table: str) -> None:
    """Write a table to its place on the page."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    part = re.compile(rf"(<!-- study: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    page.write_text(
        part.sub(lambda found: f"{found[1]}{table}{found[2]}", text), encoding="utf-8"
    ) if text else None


if __name__ == "__main__":
    sys.exit(main())
