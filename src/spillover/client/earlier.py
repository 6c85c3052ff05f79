"""Calls as arguments of later calls: pickled as marks, which the worker replaces with what the calls returned."""

import io
from typing import Any, Final, NoReturn

import cloudpickle  # type: ignore[import-untyped]

from spillover.client.handles import CallHandle, MapHandle

MOST: Final = 10_000
"""Most earlier calls of one call, or of one map."""


def earlier(at: int | list[int]) -> NoReturn:
    """Stand for the value of an earlier call. Only workers of earlier releases call this."""
    raise TypeError(f"the agent is too old to pass on the value of an earlier call ({at}); upgrade it")


class EarlierCalls:
    """The calls that the arguments of one call, or of all calls of a map, refer to."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def jobs(self) -> list[str]:
        """Their ids, by place."""
        return list(self._places)

    def pickled(self, value: object) -> bytes:
        """Pickle a value, with marks for calls in it."""
        with io.BytesIO() as file:
            _Pickler(file, self).dump(value)
            return file.getvalue()

    def place(self, job: str) -> int:
        """Return the place of a call."""
        if job not in self._places and len(self._places) >= MOST:
            raise ValueError(
                f"the arguments refer to more than {MOST:,} calls; combine their values in several steps"
            )
        return self._places.setdefault(job, len(self._places))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions of scripts too, and marks calls. It is asked about objects of classes only, not about plain data."""

    def __init__(self, file: io.BytesIO, calls: EarlierCalls) -> None:
        super().__init__(file, 5)
        self._calls = calls

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object."""
        if isinstance(obj, CallHandle):
            return earlier, (self._calls.place(obj.job),)
        if isinstance(obj, MapHandle):
            return earlier, ([self._calls.place(f"{obj.job}.{index}") for index in range(len(obj))],)
        return super().reducer_override(obj)
