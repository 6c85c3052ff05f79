"""Builds the part of a registration that stays the same for the whole run of an agent."""

from typing import Final

from spillover import __version__
from spillover.agent.connection import convert
from spillover.agent.options import AgentOptions
from spillover.agent.runners.port import RunnerOffer
from spillover.model.admission import SECRETS, SESSIONS, SIGNALS, SRUN, STATE, STDIN, WALLTIMES
from spillover.model.cluster import WITHOUT
from spillover.ports.clock import boot_id
from spillover.wire import agents_pb2 as pb

PROTOCOL: Final = 1
ABILITIES: Final = (SECRETS, SESSIONS, SIGNALS, SRUN, STATE, STDIN, WALLTIMES)
"""What this release can do and earlier ones cannot."""
MOST_WHY: Final = 200
"""Most characters of the reason why the agent does not offer something."""


def introduce(options: AgentOptions, life: str, pid: int) -> pb.RegisterRequest:
    """Return the introduction without the offers of runners. `life` is unique to each run of an agent."""
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
        address=options.address,
        gangs=True,
        abilities=ABILITIES,
        inside=convert.inside_out(options.inside) if options.inside is not None else None,
    )


def add_offer(introduction: pb.RegisterRequest, offer: RunnerOffer) -> None:
    """Add what runners offer, and for each missing offer the reason."""
    introduction.offers.extend(word for word in offer.words if word not in introduction.offers)
    for word, why in offer.missing.items():
        introduction.labels[f"{WITHOUT}{word}"] = why[:MOST_WHY]
