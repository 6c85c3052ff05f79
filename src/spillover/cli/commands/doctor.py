"""`spill doctor`: checks a server and its data, and says how to repair them."""

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
from spillover.cli.printing.output import Output, clean

if TYPE_CHECKING:
    from spillover.config.config import Config
    from spillover.server.doctor.findings import Finding

_OFTEN: Final = 0.2
"""Seconds between two progress messages."""
_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="spill.yaml of the server (default: ./spill.yaml if it exists)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="skip slow checks that read the whole history: the replay and SQLite's integrity check",
    )
    parser.add_argument("--all", action="store_true", help="also print a line for each check that passed")
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
    """Return data folder and configuration; both None for a server elsewhere, no configuration if it is unknown."""
    from spillover.server.up import DEFAULT_CONFIG, settings_of  # noqa: PLC0415 - heavy

    named = args.data or (None if args.config else os.environ.get("SPILL_DATA"))
    elsewhere = args.server or (not args.data and not args.config and os.environ.get("SPILL_SERVER"))
    if elsewhere and not args.data and not args.config:
        return None, None
    settings = settings_of(args.config, None)
    folder = Path(named or settings.data)
    if not folder.is_dir():
        raise UsageError(f"data folder {folder} does not exist; set --data, or --server for another machine")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UsageError(f"{folder} is not readable; run this as the user that runs the server")
    told = args.config or (Path(DEFAULT_CONFIG).is_file() and _same(folder, Path(settings.data)))
    return folder.absolute(), settings if told else None


def _same(one: Path, other: Path) -> bool:
    """Tell whether two paths are the same folder."""
    return other.exists() and one.samefile(other)


def _lines(findings: "Sequence[Finding]", *, each: bool) -> list[tuple[str, str, str]]:
    """Return level, check and text of each line; passed checks share one last line unless `each` is set."""
    shown = [
        (str(finding.level), finding.check, "; ".join(filter(None, (finding.found, finding.todo))))
        for finding in findings
        if each or finding.level != "ok"
    ]
    well = list(dict.fromkeys(finding.check for finding in findings if finding.level == "ok"))
    wrong = {finding.check for finding in findings if finding.level != "ok"}
    if not each and (well := [name for name in well if name not in wrong]):
        passed = f"check{'' if len(well) == 1 else 's'} passed (--all lists them)"
        shown.append(("ok", "", f"{len(well)} other {passed}" if shown else f"all {len(well)} {passed}"))
    return shown


def _show(out: Output, lines: list[tuple[str, str, str]]) -> None:
    """Print aligned lines; a terminal wraps long ones and indents the rest."""
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
        out.line(f"{level:7}  {check:{wide}}  {text}" if wide else f"{level:7}  {text}")


@contextmanager
def _progress(out: Output) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the current step; a terminal shows it, and clears it at the end."""
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
        "Check a data folder and the server that uses it, if one is running. Prints a line for each problem with what to do about it, and changes nothing. For a server on another machine (--server or SPILL_SERVER) it checks only the server. Exit code 0 if there is nothing to do, else 1.",
        _configure,
        _run,
        "spill doctor\nspill doctor --data ./spill-data --quick\nspill doctor --config spill.yaml --json",
    )
}
