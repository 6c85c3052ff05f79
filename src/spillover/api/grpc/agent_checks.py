"""Checks registrations and reports of agents before the server acts on them."""

from typing import Final

from spillover.forms.quantities import WORD_RULE, is_word
from spillover.model.bounds import MOST_AMOUNT, is_plain
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.inside import MOST_DOMAINS, cpu_mask, wrong_inside
from spillover.model.units import FOREVER, format_cpu
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import MOST_HELD, MOST_QUEUE, MOST_REPORTED, inside_in

PROTOCOL: Final = 1
MOST_GPUS: Final = 100_000
MOST_LABEL: Final = 2000
"""Most characters of the key or the value of a label."""
MOST_BOOT: Final = 100
"""Most characters of the boot id of a machine."""
MOST_PEER: Final = 300
"""Most characters of the address where other agents reach an agent."""
MOST_ADDRESS: Final = 255
"""Most characters of the host where tasks of gangs reach those of an agent."""
MOST_VERSION: Final = 50
"""Characters that the release of an agent is cut to."""
MOST_ID: Final = 100
"""Most characters of the id of a GPU, or of a kind of link."""
MOST_LIFE: Final = 100
"""Most characters of the id of an agent's run."""


def wrong_registration(request: pb.RegisterRequest) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one check for each field
    """Return the problem with a registration; None if there is none."""
    if request.protocol != PROTOCOL:
        return f"protocol {request.protocol} is not supported; this server supports {PROTOCOL}"
    for what in (request.cluster, request.name):
        if not is_name(what):
            return f"{what[:80]!r} is not a name: {NAME_RULE}"
    capacity = request.capacity
    if not 0 < capacity.cpu < 2**40 or capacity.memory >= MOST_AMOUNT or capacity.gpu > MOST_GPUS:
        return "capacity.cpu must be above 0, and all of capacity within bounds"
    if request.queue > MOST_QUEUE:
        return f"queue is {request.queue}; the maximum is {MOST_QUEUE}"
    if len(request.held) > MOST_HELD:
        return f"held names {len(request.held)} leases; the maximum is {MOST_HELD}"
    if max(request.epoch, request.number) > FOREVER:
        return f"epoch and number are {request.epoch} and {request.number}; the maximum is {FOREVER}"
    for name, text, most in (
        ("peer", request.peer, MOST_PEER),
        ("life", request.life, MOST_LIFE),
        ("boot", request.boot, MOST_BOOT),
        ("address", request.address, MOST_ADDRESS),
    ):
        if not is_plain(text, most):
            return f"{name} is {text[:80]!r}; write at most {most} printable characters"
    if " " in request.address:
        return f"address is {request.address[:80]!r}; write a host name or an IP address"
    if request.HasField("inside") and (wrong := _wrong_inside(request)) is not None:
        return f"inside {wrong}"
    if len(request.labels) > 100 or len(request.offers) > 1000:
        return "at most 100 labels and 1000 offers"
    for word in request.offers:
        if not is_word(word):
            return f"offers: {word[:100]!r} is not a valid word; it has {WORD_RULE}"
    for key, value in request.labels.items():
        if not is_plain(key, MOST_LABEL) or not is_plain(value, MOST_LABEL):
            return f"labels: {key[:80]!r} or its value has more than {MOST_LABEL} characters, or control characters"
    return None


def _wrong_inside(request: pb.RegisterRequest) -> str | None:
    """Return the problem with the reported inside of a machine; None if there is none."""
    inside, capacity = request.inside, request.capacity
    names = [*inside.gpus, *[link.kind for link in inside.links]]
    wrong = [
        each for each in names if not (0 < len(each) <= MOST_ID and each.isprintable() and "," not in each)
    ]
    if wrong:
        return (
            f"has the id or kind {wrong[0][:80]!r}; write 1 to {MOST_ID} printable characters without commas"
        )
    if len(inside.domains) > MOST_DOMAINS or len(inside.gpus) > MOST_GPUS:
        return f"has more than {MOST_DOMAINS} NUMA nodes or {MOST_GPUS} GPUs"
    found = inside_in(inside)
    if (problem := wrong_inside(found)) is not None:
        return problem
    if found.gpus and len(found.gpus) != capacity.gpu:
        return f"has {len(found.gpus)} GPUs, and the capacity {capacity.gpu}"
    cpus = sum([cpu_mask(lane).bit_count() for domain in found.domains for lane in domain.cpus])
    if cpus and cpus * 1000 < capacity.cpu:
        return f"has {cpus} CPUs, and the capacity {format_cpu(capacity.cpu)}; report all, or none"
    return None


def too_many(request: pb.ReportRequest) -> str | None:
    """Return which list of a report is too long; None if none is."""
    for name in ("started", "results", "released", "yielded", "prepared"):
        count = len(getattr(request, name))
        if count > MOST_REPORTED:
            return f"{name} has {count} entries, of at most {MOST_REPORTED}; send several reports"
    return None
