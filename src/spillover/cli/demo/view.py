"""Shows the demo while it runs: a live picture on a terminal, plain lines in a pipe."""

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from spillover.cli.demo.machines import state_of
from spillover.cli.demo.plan import CURRENCY, RENTED
from spillover.cli.demo.story import DemoLook, Happening, called, cents, waits_for
from spillover.cli.printing.output import Output, clean
from spillover.cli.printing.shown import ENDED, number
from spillover.model.units import so_many

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.text import Text

    from spillover.wire.api import ClusterView

_BAR: Final = 24
"""Characters of the bar of a cluster."""
_RECENT: Final = 9
"""Events that stay visible."""
HEADS: Final = 3
"""Waiting jobs to show with their reasons."""


class DemoView:
    """Shows each look at the server."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._recent: deque[tuple[float, Happening]] = deque(maxlen=_RECENT)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._out.terminal:
            from rich.live import Live  # noqa: PLC0415 - heavy

            self._live = Live(console=self._out.console(), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, look: DemoLook, news: list[Happening]) -> None:
        """Show a look and the events since the last one."""
        self._recent.extend((look.elapsed, one) for one in news)
        if self._live is not None:
            self._live.update(picture(look, list(self._recent)), refresh=True)
            return
        for one in news:
            self._out.line(f"{look.elapsed:5.1f}s  {one.subject:<10}  {one.text}")
        self._out.flush()


def picture(look: DemoLook, recent: list[tuple[float, Happening]]) -> "RenderableType":
    """Return one frame; its height is constant, so that it does not jump."""
    from rich.console import Group  # noqa: PLC0415 - heavy
    from rich.text import Text  # noqa: PLC0415 - heavy

    lines = [_headline(look), Text(), *_queue(look), Text()]
    lines += [_cluster(cluster, look.rent()) for cluster in look.clusters]
    lines += [_machines(look), Text(), Text("what just happened, and why", style="bold")]
    for at, one in recent:
        line = Text(f"{at:5.1f}s  ", style="bright_black")
        line.append(f"{one.subject:<10}  ", style="bold").append(clean(one.text), style=one.style)
        lines.append(line)
    lines += [Text() for _ in range(_RECENT - len(recent))]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _headline(look: DemoLook) -> "Text":
    from rich.text import Text  # noqa: PLC0415 - heavy

    to_come = look.total - len(look.jobs)
    parts = [
        (to_come, "to come"),
        (len(look.waiting()), "waiting"),
        (look.count("RUNNING"), "running"),
        (look.count(*ENDED), "ended"),
    ]
    line = Text(f"spill demo {look.elapsed:5.1f}s   ", style="bold")
    return line.append(
        f"{so_many(look.total)}: " + ", ".join(f"{count} {word}" for count, word in parts), style="not bold"
    )


def _queue(look: DemoLook) -> "list[Text]":
    """Return the length of the queue, and what the first jobs wait for."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    waiting = look.waiting()
    lines = [
        Text(f"{'queue':<8}", style="bold").append(
            "■" * min(len(waiting), 40) or "empty", style="not bold yellow"
        )
    ]
    for job, why in look.heads[:HEADS]:
        lines.append(Text(f"{'':8}{called(job):<10}  {clean(waits_for(why))}", style="bright_black"))
    return lines + [Text() for _ in range(HEADS + 1 - len(lines))]


def _cluster(cluster: "ClusterView", rent: float) -> "Text":
    """Return a bar of the CPUs in use."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    has, used = cluster.capacity.get("cpu", 0.0), cluster.used.get("cpu", 0.0)
    full = round(_BAR * min(1.0, used / has)) if has else 0
    rented = cluster.name == RENTED
    line = Text(f"{cluster.name:<8}", style="bold")
    line.append("█" * full, style="not bold yellow" if rented else "not bold cyan").append(
        "░" * (_BAR - full), style="not bold bright_black"
    )
    cpus = f"{number(used)} of {number(has)} CPUs" if has else "no machine now"
    line.append(f"  {cpus}, {cluster.role}", style="not bold")
    return line.append(f", {cents(rent)} {CURRENCY} so far" if rented else "", style="not bold")


def _machines(look: DemoLook) -> "Text":
    """Return what each rented machine does now, and how many were given back."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    live = look.live()
    parts = [f"{each.machine.id} {state_of(each)}" for each in live]
    back = len(look.machines) - len(live)
    parts += [f"{back} given back"] if back else []
    return Text(f"{'':8}{', '.join(parts)}", style="magenta")
