"""Tells people what they asked for and will not get, such as priorities that the order ignores.

None of it is an error, because the job runs. But without a line, somebody waits for an effect that never comes.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from posixpath import basename
from typing import TYPE_CHECKING, Any, Final

from spillover.model.policy_options import IGNORE_PRIORITY

if TYPE_CHECKING:
    from spillover.cli.printing.output import Output
    from spillover.config.config import Config

_INTERACTIVE: Final = frozenset(
    {
        "bash",
        "dash",
        "ash",
        "sh",
        "zsh",
        "ksh",
        "fish",
        "csh",
        "tcsh",
        "python",
        "python3",
        "ipython",
        "R",
        "julia",
    }
    | {"node", "irb", "ghci", "vi", "vim", "nano", "emacs", "less", "more", "top", "htop", "screen", "tmux"}
)
"""Programs that without arguments wait for somebody who types."""


@contextmanager
def telling(out: "Output") -> Iterator[None]:
    """Print a note for each thing that a submission asks for and that has no effect."""
    from spillover.client import NoEffect  # noqa: PLC0415 - heavy

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoEffect)
        yield
    for each in caught:
        if issubclass(each.category, NoEffect):
            out.note(str(each.message))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def ignored_settings(config: "Config") -> Iterator[str]:
    """Yield what is to be told about a configuration: settings of queues that have no effect."""
    order, known = config.policies.order.name, {spec.name for spec in config.clusters}
    for queue in config.queues:
        if order in IGNORE_PRIORITY and (queue.priority or queue.defaults.priority):
            yield f"queue {queue.name}: its priority has no effect, because `policy.order` is `{order}`"
        for cluster in queue.clusters:
            if cluster not in known:
                yield f"queue {queue.name}: there is no cluster {cluster} here; add it, or correct `clusters`"


def tell_ignored_lines(out: "Output", document: Mapping[str, Any], source: str) -> None:
    """Print a note for each thing in a script that does not count; the document is its job."""
    from spillover.forms.jobs.ignored import ignored_in  # noqa: PLC0415 - heavy

    for note in ignored_in(document["spec"], source):
        out.note(note)


def tell_unread(out: "Output", words: Sequence[str]) -> None:
    """Print a note if a command waits for somebody who types."""
    program = basename(words[0])
    if program in _INTERACTIVE and all(word in {"-i", "-l", "-il", "--login"} for word in words[1:]):
        out.note(
            f"{program} gets no terminal and an empty standard input, so it ends at once or waits for nothing; "
            f"give it a terminal with `spill run --pty -- {program}`, or write what it should do"
        )
