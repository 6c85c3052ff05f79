"""What an agent says of itself with every registration: the same for life."""

from typing import Final

from spillover import __version__
from spillover.agent import convert
from spillover.agent.options import AgentOptions
from spillover.agent.runners.port import RunnerOffer
from spillover.model.cluster import WITHOUT
from spillover.ports.clock import boot_id
from spillover.wire import agents_pb2 as pb

PROTOCOL: Final = 1
MOST_WHY: Final = 200
"""Characters of why something is not offered."""


def introduce(options: AgentOptions, life: str, pid: int) -> pb.RegisterRequest:
    """What is known before anything was tried; no two lives are called the same."""
    return pb.RegisterRequest(
        protocol=PROTOCOL,
        cluster=options.cluster,
        name=options.name,
        life=life,
        capacity=convert.resources_out(options.capacity),
        offers=options.offers,
        labels=options.labels,
        queue=options.queue,
        version=__version__,
        pid=pid,
        boot=boot_id(),
        stream=True,
    )


def add_offer(introduction: pb.RegisterRequest, offer: RunnerOffer) -> None:
    """Add what runners make possible, and why they do not."""
    introduction.offers.extend(word for word in offer.words if word not in introduction.offers)
    for word, why in offer.missing.items():
        introduction.labels[f"{WITHOUT}{word}"] = why[:MOST_WHY]
