"""What agents say of themselves and of their tasks, checked before anybody acts on it."""

from typing import Final

from spillover.forms.quantities import WORD_RULE, is_word
from spillover.model.bounds import MOST_AMOUNT, is_plain
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.units import FOREVER
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import MOST_HELD, MOST_QUEUE, MOST_REPORTED

PROTOCOL: Final = 1
MOST_GPUS: Final = 100_000
MOST_LABEL: Final = 2000
"""Characters of the key or the value of a label."""
MOST_BOOT: Final = 100
"""Characters of what the start of a machine is known by."""
MOST_PEER: Final = 300
"""Characters of the address where agents ask each other."""
MOST_LIFE: Final = 100
"""Characters of what tells one start of an agent from another."""


def wrong_registration(request: pb.RegisterRequest) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one line for each thing that can be wrong
    """What is wrong with a registration, if anything."""
    if request.protocol != PROTOCOL:
        return f"protocol {request.protocol} is not spoken here; this server speaks {PROTOCOL}"
    for what in (request.cluster, request.name):
        if not is_name(what):
            return f"{what[:80]!r} is not a name: {NAME_RULE}"
    capacity = request.capacity
    if not 0 < capacity.cpu < 2**40 or capacity.memory >= MOST_AMOUNT or capacity.gpu > MOST_GPUS:
        return "capacity.cpu must be above 0, and nothing of capacity absurd"
    if request.queue > MOST_QUEUE:
        return f"queue is {request.queue}; the most is {MOST_QUEUE}"
    if len(request.held) > MOST_HELD:
        return f"held names {len(request.held)} leases; the most is {MOST_HELD}"
    if max(request.epoch, request.number) > FOREVER:
        return f"epoch and number are {request.epoch} and {request.number}; the most is {FOREVER}"
    for name, text, most in (
        ("peer", request.peer, MOST_PEER),
        ("life", request.life, MOST_LIFE),
        ("boot", request.boot, MOST_BOOT),
    ):
        if not is_plain(text, most):
            return f"{name} is {text[:80]!r}; it has at most {most} characters, all of them printable"
    if len(request.labels) > 100 or len(request.offers) > 1000:
        return "at most 100 labels and 1000 offers"
    for word in request.offers:
        if not is_word(word):
            return f"offers: {word[:100]!r} is not a word to match; it has {WORD_RULE}"
    for key, value in request.labels.items():
        if not is_plain(key, MOST_LABEL) or not is_plain(value, MOST_LABEL):
            return f"labels: {key[:80]!r} or its value has more than {MOST_LABEL} characters, or control characters"
    return None


def too_many(request: pb.ReportRequest) -> str | None:
    """What of a report is more than one may have, if anything."""
    for name in ("started", "results", "released", "yielded"):
        count = len(getattr(request, name))
        if count > MOST_REPORTED:
            return f"{name} has {count} entries; the most is {MOST_REPORTED}: send several reports"
    return None
