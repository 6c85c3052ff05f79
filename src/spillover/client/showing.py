"""Shows calls and maps of Python: as one line, and in notebooks as a bar that follows them while they run."""

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from reprlib import Repr
from typing import Any, Final

from spillover.client.asks import ask
from spillover.client.errors import SpillError
from spillover.client.face import Behind, beside
from spillover.client.flows import ENDED
from spillover.client.gathering import Gathering
from spillover.model.units import SECOND, format_duration
from spillover.wire import endpoints
from spillover.wire.api import JobDetail, ReasonView, ResultView
from spillover.wire.parameters import OfJob

FRESH: Final = 1.0
"""Seconds for which a known state is shown without asking again, and between two changes of a bar."""
PATIENCE: Final = 2.0
"""Seconds to ask for a state that is only shown."""
_COLOURS: Final = {
    "SUCCEEDED": "#2e7d32",
    "FAILED": "#c62828",
    "TIMED_OUT": "#c62828",
    "CANCELLED": "#9e9e9e",
    "RUNNING": "#1976d2",
    "PLACED": "#90caf9",
}
"""Of each state in the bar; what has no colour waits."""


class _Brief(Repr):
    """Shortens arguments; of other than plain ones it names the type, as their own text may be long and slow to make."""

    def repr_instance(self, x: object, level: int) -> str:  # noqa: ARG002 - as in its base
        """Return the type of an object."""
        return repr(x) if x is None or isinstance(x, bool | float) else f"<{type(x).__name__}>"


_brief = _Brief()
_brief.maxstring = _brief.maxother = 30
_brief.maxlevel = 2


def label_of(name: str, args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None) -> str:
    """Return a call as people write it, in short."""
    words = [_brief.repr(arg) for arg in args[:4]]
    words += [f"{key}={_brief.repr(value)}" for key, value in list((kwargs or {}).items())[:4]]
    more = ", ..." if len(args) > 4 or len(kwargs or {}) > 4 else ""
    return f"{name}({', '.join(words)}{more})"


class Shown:
    """A call or a map that shows itself."""

    _client: Behind[Any]
    _gathering: Gathering
    _view: JobDetail | None = None
    """What was known at last."""
    _seen_at = -FRESH
    job: Any

    def __repr__(self) -> str:
        if not self.job:
            return f"<{type(self).__name__} of nothing>"
        told = self._now()
        name = self._gathering.label or (self._view.name if self._view is not None else "")
        return f"<{type(self).__name__}{f' {name}' if name else ''} job {self.job} {told}>"

    def _repr_html_(self) -> str:
        """Return a bar, counts and states for notebooks."""
        told = self._now()
        name = self._gathering.label or (self._view.name if self._view is not None else type(self).__name__)
        parts = "".join(
            f'<span style="display:inline-block;height:100%;width:{100 * share:.2f}%;background:{_COLOURS[state]}">'
            "</span>"
            for state, share in self._shares()
        )
        bar = (
            '<div style="width:20em;height:.8em;line-height:0;background:#e0e0e0;border-radius:3px;overflow:hidden">'
            f"{parts}</div>"
        )
        return (
            f"<div><b>{escape(name)}</b> job <code>{escape(str(self.job))}</code> {escape(told)}{bar}</div>"
        )

    def _ipython_display_(self) -> None:
        """Show it in a notebook, and follow it there; as a line in a terminal."""
        from IPython import get_ipython  # type: ignore[import-not-found] # noqa: PLC0415 - only IPython calls this
        from IPython.display import display  # type: ignore[import-not-found] # noqa: PLC0415

        if getattr(get_ipython(), "kernel", None) is None:
            print(repr(self))  # noqa: T201 - that is what IPython asks for
            return
        handle = display(self._bundle(), raw=True, display_id=True)
        if handle is not None and not self._over():
            threading.Thread(target=self._follow, args=(handle,), name="spillover-bar", daemon=True).start()

    def _follow(self, handle: Any) -> None:
        """Change what a notebook shows until it has ended."""
        while not self._over():
            time.sleep(FRESH)
            with contextlib.suppress(Exception):  # a bar is not worth a traceback in the notebook
                handle.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def _known_end(self) -> ResultView | None:
        """Return how a call ended, if that is known here."""
        index = getattr(self, "index", None)
        return None if index is None else self._gathering.results.get(index)

    def _over(self) -> bool:
        if self._known_end() is not None or not self.job:
            return True
        view = self._view
        return view is not None and view.state in ENDED

    def _now(self) -> str:
        """Return its state in words; ask for it, unless that was done just now."""
        result = self._known_end()
        if result is not None and (self._view is None or self._view.state not in ENDED):
            return _ended(result.state, result.reason, "")
        if not self.job:
            return ""
        problem = self._look()
        view = self._view
        if view is None:
            return f"in an unknown state: {problem}"
        if view.array is not None:
            counts = view.array.counts
            done = sum(count for state, count in counts.items() if state in ENDED)
            rest = ", ".join(
                f"{count:,} {_word(state)}"
                for state, count in counts.items()
                if state != "SUCCEEDED" and count
            )
            return f"{done:,} of {view.array.size:,} done{f'; {rest}' if rest else ''}"
        place = f" on {view.cluster}/{view.node}" if view.cluster else ""
        match view.state:
            case "RUNNING":
                return f"running{place}{_since(view.started_at)}"
            case state if state in ENDED:
                return _ended(state, view.reason, place)
            case state:
                return f"{_word(state)}{place}{_since(view.submitted_at)}"

    def _look(self) -> str:
        """Ask for the state; return the problem, or an empty string."""
        if self._view is not None and (self._view.state in ENDED or time.monotonic() - self._seen_at < FRESH):
            return ""
        try:
            self._view = _asker(self._client).run(
                iter(replace(ask(endpoints.SHOW, OfJob(self.job)), seconds=PATIENCE))
            )
        except SpillError as error:
            return str(error)
        self._seen_at = time.monotonic()
        return ""

    def _shares(self) -> list[tuple[str, float]]:
        """Return the parts of the bar."""
        view = self._view
        if view is not None and view.array is not None:
            counts, size = view.array.counts, max(1, view.array.size)
            return [(state, counts[state] / size) for state in _COLOURS if counts.get(state)]
        result = self._known_end()
        state = result.state if result is not None else view.state if view is not None else ""
        if state in ENDED:
            return [(state, 1.0)]
        if state != "RUNNING" or view is None or view.started_at is None:
            return []
        expected = view.estimate_s or 0.0
        share = min(0.95, _age(view.started_at) / expected) if expected else 0.5
        return [(state, share)]


def _asker(client: Behind[Any]) -> Behind[Any]:
    """Return a client that may block: that of a blocking call, or one beside that of asyncio."""
    from spillover.client.synchronous.sender import Sender  # noqa: PLC0415 - it may not be loaded yet

    if isinstance(client.face, Sender):
        return client
    known = client.__dict__.get("asker")
    if known is None:
        known = client.__dict__["asker"] = beside(Sender, client.face)._behind  # noqa: SLF001 - it is made for this
    return known


def _word(state: str) -> str:
    return state.lower().replace("_", " ")


def _ended(state: str, why: ReasonView | None, place: str) -> str:
    return f"{_word(state)}{place}" + ("" if state == "SUCCEEDED" or why is None else f": {why.message}")


def _age(moment: str) -> float:
    """Return the seconds since a moment."""
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def _since(moment: str | None) -> str:
    return "" if moment is None else f" for {format_duration(int(_age(moment)) * SECOND)}"
