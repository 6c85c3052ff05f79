"""Corrects forecasts of starts by how earlier ones came true.

Jobs that are submitted later, and users whose jobs change together, make waits longer than any case of a forecast knows.
So the real waits of jobs are compared with what was forecast for them, and later forecasts are stretched accordingly.
"""

from collections import OrderedDict, deque
from typing import Final

from msgspec.structs import replace

from spillover.deciding.expected import StartRange
from spillover.model.ids import JobId

ONE: Final = 1000
"""No correction. Corrections are in thousandths."""
USUAL: Final = (1250, 1400)
"""Corrections for 50 and 90 % until enough is known, as on traces of real clusters."""
ENOUGH: Final = 30
"""Jobs that must have started before their waits are used."""
KEPT: Final = 300
"""The last jobs that count."""
MOST_OPEN: Final = 5000
"""Forecasts of jobs that have not started yet; the oldest ones are dropped."""
_MOST: Final = 20 * ONE


class Corrections:
    """Learns from forecasts and from the starts of their jobs."""

    def __init__(self) -> None:
        self._open: OrderedDict[JobId, tuple[int, int, int]] = OrderedDict()
        """When the first forecast of a waiting job was made, and its times before they were corrected."""
        self._ratios: tuple[deque[int], deque[int]] = (deque(maxlen=KEPT), deque(maxlen=KEPT))
        """Real waits divided by those of 50 and of 90 % of cases, of jobs that have started."""

    def given(self, job: JobId, start: StartRange, now: int) -> None:
        """Note a forecast; only the first one of each job counts."""
        if start.p50 is None or start.p90 is None or start.p50 <= now or job in self._open:
            return
        self._open[job] = (now, start.p50, start.p90)
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)

    def started(self, job: JobId, at: int) -> None:
        """Compare the start of a job with its forecast, if there was one."""
        found = self._open.pop(job, None)
        if found is not None:
            now, p50, p90 = found
            self._ratios[0].append(max(0, at - now) * ONE // (p50 - now))
            self._ratios[1].append(max(0, at - now) * ONE // (p90 - now))

    def corrected(self, start: StartRange, now: int) -> StartRange:
        """Return a forecast whose times come true as often as they say. One without a range is not corrected."""
        if start.p50 == start.p90:
            return start
        p50 = _stretched(start.p50, now, self._factor(0))
        p90 = _stretched(start.p90, now, self._factor(1))
        return replace(start, p50=p50, p90=p90 if p50 is None or p90 is None else max(p50, p90))

    def _factor(self, at: int) -> int:
        """Return what half, or nine of ten, of the real waits stayed below, compared with the forecast."""
        ratios = sorted(self._ratios[at])
        if len(ratios) < ENOUGH:
            return USUAL[at]
        part = (len(ratios) - 1) // 2 if at == 0 else min(len(ratios) - 1, len(ratios) * 9 // 10)
        return min(_MOST, ratios[part])


def _stretched(at: int | None, now: int, factor: int) -> int | None:
    return None if at is None else now + max(0, at - now) * factor // ONE
