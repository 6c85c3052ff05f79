"""`spill doctor`: whether a server and its data are healthy, and what to do if they are not."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.output import Output, clean

if TYPE_CHECKING:
    from spillover.config.config import Config
    from spillover.server.doctor.findings import Finding

_OFTEN: Final = 0.2
"""Seconds between two words on what is being done."""
_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="spill.yaml of the server (default: ./spill.yaml if it is there)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out what takes as long as there is history: the replay and SQLite's check of the whole file",
    )
    parser.add_argument(
        "--all", action="store_true", help="print a line also for each check that found nothing"
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.server.doctor.checks import examine  # noqa: PLC0415 - heavy
    from spillover.server.doctor.inspection import Inspection  # noqa: PLC0415 - heavy

    data, config = _places(args)
    if data is not None:
        args.data = str(data)
    with _progress(context.out) as tell:
        inspection = Inspection(
            data=data, config=config, connect=partial(context.connect, args), quick=args.quick, tell=tell
        )
        with closing(inspection):
            report = examine(inspection)
    if args.json:
        context.out.json(report)
    else:
        _show(context.out, _lines(report.findings, each=args.all))
    return codes.OK if report.healthy else codes.UNHEALTHY


def _places(args: Namespace) -> "tuple[Path | None, Config | None]":
    """The data folder and the configuration; None for a server elsewhere."""
    from spillover.server.up import DEFAULT_CONFIG, settings_of  # noqa: PLC0415 - heavy

    named = args.data or (None if args.config else os.environ.get("SPILL_DATA"))
    elsewhere = args.server or (not args.data and not args.config and os.environ.get("SPILL_SERVER"))
    if elsewhere and not args.data and not args.config:
        return None, None
    settings = settings_of(args.config, None)
    folder = Path(named or settings.data)
    if not folder.is_dir():
        raise UsageError(f"there is no data folder {folder}; name it with --data, or a server with --server")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UsageError(f"{folder} cannot be read; ask as the user whose server it is")
    told = args.config or (Path(DEFAULT_CONFIG).is_file() and _same(folder, Path(settings.data)))
    return folder.absolute(), settings if told else None


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are one folder."""
    return other.exists() and one.samefile(other)


def _lines(findings: "Sequence[Finding]", *, each: bool) -> list[tuple[str, str, str]]:
    """Level, what was looked at, and what was found; what is well is one line at the end, unless each is wanted."""
    shown = [
        (str(finding.level), finding.check, "; ".join(filter(None, (finding.found, finding.todo))))
        for finding in findings
        if each or finding.level != "ok"
    ]
    well = list(dict.fromkeys(finding.check for finding in findings if finding.level == "ok"))
    wrong = {finding.check for finding in findings if finding.level != "ok"}
    if not each and (well := [name for name in well if name not in wrong]):
        shown.append(("ok", "" if shown else "all", ", ".join(well)))
    return shown


def _show(out: Output, lines: list[tuple[str, str, str]]) -> None:
    """Aligned; a terminal wraps long lines under themselves."""
    if out.terminal:
        from rich.table import Table  # noqa: PLC0415 - heavy
        from rich.text import Text  # noqa: PLC0415 - heavy

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for level, check, text in lines:
            table.add_row(Text(level, _STYLES[level]), check, Text(clean(text)))
        out.console().print(table)
        return
    wide = max((len(check) for _, check, _ in lines), default=0)
    for level, check, text in lines:
        out.line(f"{level:7}  {check:{wide}}  {text}")


@contextmanager
def _progress(out: Output) -> Iterator[Callable[[str], None]]:
    """Call what it gives with what is being done; shown on a terminal, and gone in the end."""
    if not out.err.isatty():
        yield lambda _: None
        return
    shown = monotonic()
    wrote = False

    def tell(text: str) -> None:
        nonlocal shown, wrote
        if monotonic() - shown >= _OFTEN:
            shown, wrote = monotonic(), True
            print(f"\r{clean(text)}\x1b[K", end="", file=out.err, flush=True)

    try:
        yield tell
    finally:
        if wrote:
            print("\r\x1b[K", end="", file=out.err, flush=True)


COMMANDS = {
    "doctor": Command(
        "Check a data folder and the server that runs on it, if one does: a line for each thing that somebody should see to, with what to "
        "do about it. Nothing is written. A server elsewhere (--server or SPILL_SERVER) is asked alone. Exit code 0 if nobody has to do "
        "anything, else 1.",
        _configure,
        _run,
        "spill doctor\nspill doctor --data ./spill-data --quick\nspill doctor --config spill.yaml --json",
    )
}
