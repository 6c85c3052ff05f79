"""Checks the text of a job file as somebody writes it: the same messages as `spill submit`, with their lines."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from spillover.forms.jobs.reading import JobForm, read_with_lines, to_doc
from spillover.forms.problems import BadForm, FormProblem, Origin, located_in
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import CheckRequest, CheckView, Forecasts, TextProblem

_OURS = frozenset(
    {ErrorKind.INVALID, ErrorKind.FORBIDDEN, ErrorKind.UNKNOWN, ErrorKind.AMBIGUOUS, ErrorKind.CONFLICT}
)
"""Errors that the text can mend."""


async def check_text(
    request: CheckRequest, forecast: Callable[[Sequence[JobForm]], Awaitable[Forecasts]]
) -> CheckView:
    """Return the problems of a text, or its jobs; with a forecast also what only the server can refuse."""
    try:
        # In a thread: a long text takes longer to parse than the loop may pause.
        read = await asyncio.to_thread(read_with_lines, request.text, request.name)
    except BadForm as bad:
        return _refused(bad.problems, bad.more)
    forms = [form for form, _ in read]
    origins = [Origin(request.name, lines) for _, lines in read]
    files = [problem for form, origin in zip(forms, origins, strict=True) for problem in _files(form, origin)]
    if files:
        return _refused(files)
    forecasts = None
    if request.forecast:
        try:
            forecasts = await forecast(forms)
        except CommandError as error:
            if error.kind not in _OURS:
                raise
            problems = [located_in(each.path, each.message, origins) for each in error.problems]
            return _refused(problems or [FormProblem(request.name, None, "", error.message)])
    ignored = [warning for form in forms for warning in form.warnings]
    warnings = [] if forecasts is None else [TextProblem(None, "", each) for each in forecasts.warnings]
    return CheckView(
        [],
        0,
        [to_doc(form) for form in forms],
        [*_shown(ignored), *warnings],
        None if forecasts is None else forecasts.jobs,
    )


def _files(form: JobForm, origin: Origin) -> Iterable[FormProblem]:
    """Yield what needs files of the submitter's machine, which only a client there can send."""
    told = "names files of your machine, which a page cannot send: use `spill submit`"
    if form.unpacked:
        yield located_in("spec.inputs", told, [origin])
    if form.stdin is not None:
        yield located_in("spec.stdin", told, [origin])


def _refused(problems: Sequence[FormProblem], more: int = 0) -> CheckView:
    return CheckView(_shown(problems), more, [], [])


def _shown(problems: Iterable[FormProblem]) -> list[TextProblem]:
    return [TextProblem(each.line, each.path, each.message) for each in problems]
