"""Shows the progress of long work on standard error: a bar on a terminal, a line for each part elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from spillover.cli.printing.output import Output, clean
from spillover.model.units import SECOND, format_duration, format_memory, so_many

if TYPE_CHECKING:
    from spillover.client.packing import InputSizes

_OFTEN: Final = 0.2
"""Seconds between two updates of a terminal."""


@contextmanager
def progress(out: Output, parts: int, known: int = 0) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each finished part; `known` parts were finished before."""
    if known:
        out.note("1 result exists already" if known == 1 else f"{known:,} results exist already")
    if parts and out.err.isatty():
        with _bar(out, parts) as done:
            yield done
    else:
        yield _lines(out, parts)


def _lines(out: Output, parts: int) -> Callable[[str], None]:
    """Return a function that prints a line for each part."""
    began = monotonic()
    count = 0

    def done(name: str) -> None:
        nonlocal count
        count += 1
        left = (monotonic() - began) / count * (parts - count)
        ahead = f", about {format_duration(round(left) * SECOND)} left" if count < parts else ""
        out.note(f"{count} of {parts}: {name}{ahead}")
        out.err.flush()

    return done


@contextmanager
def counting(out: Output, jobs: int, patience: float = 2.0) -> Iterator[Callable[[int], None] | None]:
    """Yield a function to call with the number of ended jobs, shown after `patience` seconds; else None."""
    if not out.err.isatty():
        yield None
        return
    began = shown = monotonic()

    def ended(count: int) -> None:
        nonlocal shown
        now = monotonic()
        if now - began < patience or now - shown < _OFTEN:
            return
        shown = now
        left = format_duration(round((now - began) / count * (jobs - count)) * SECOND)
        print(
            f"\r{count:,} of {so_many(jobs)} ended, about {left} left\x1b[K", end="", file=out.err, flush=True
        )

    try:
        yield ended
    finally:
        if shown > began:
            print("\r\x1b[K", end="", file=out.err, flush=True)


@contextmanager
def moving(out: Output, what: str, patience: float = 0.5) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function to call with bytes moved and total, shown after `patience` seconds; else None."""
    if not out.err.isatty():
        yield None
        return
    began = shown = monotonic()

    def moved(done: int, total: int) -> None:
        nonlocal shown
        now = monotonic()
        if now - began < patience or now - shown < _OFTEN:
            return
        shown = now
        text = f"{clean(what)}: {format_memory(done)} of {format_memory(total)}"
        if done:
            text += f", about {format_duration(round((now - began) / done * (total - done)) * SECOND)} left"
        print(f"\r{text}\x1b[K", end="", file=out.err, flush=True)

    try:
        yield moved
    finally:
        if shown > began:
            print("\r\x1b[K", end="", file=out.err, flush=True)


@contextmanager
def _bar(out: Output, parts: int) -> Iterator[Callable[[str], None]]:
    """Show a bar with the remaining time."""
    from rich.console import Console  # noqa: PLC0415 - heavy
    from rich.progress import (  # noqa: PLC0415 - likewise
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(file=out.err), transient=True) as bar:
        task = bar.add_task("", total=parts)
        yield lambda name: bar.update(task, advance=1, description=clean(name).replace("[", r"\["))


def tell_inputs(out: Output) -> Callable[["InputSizes"], None]:
    """Return a function that tells in one line how many files there are, and how much of them is sent."""

    def told(sizes: "InputSizes") -> None:
        files = "1 file" if sizes.files == 1 else f"{sizes.files:,} files"
        if not sizes.missing:
            left = ", all there already"
        elif sizes.missing == sizes.size:
            left = " to send"
        else:
            left = f"; {format_memory(sizes.missing)}B to send, the rest is there already"
        out.note(f"{files}, {format_memory(sizes.size)}B{left}")

    return told
