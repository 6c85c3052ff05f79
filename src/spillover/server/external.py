"""External clusters, put together: how each is reached, watched and dealt with."""

import asyncio
import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from spillover.clusters.kubernetes.kubeconfig import NoAccess, access_of
from spillover.clusters.kubernetes.opening import open_cluster
from spillover.clusters.kubernetes.options import Options
from spillover.config.config import Config, Kubernetes
from spillover.control.controllers.driving import Driving
from spillover.control.driving.keeping import OutputArchive
from spillover.control.driving.ledger import Patience
from spillover.control.driving.pilot import Manner
from spillover.control.loop import Loop
from spillover.control.runner import Runner
from spillover.core.state import State
from spillover.model.ids import ClusterName
from spillover.ports.blobs import Blobs
from spillover.ports.driver import Driver


class Unusable(Exception):
    """Clusters that cannot be used; the message has a line for each problem."""


def check_access(config: Config, environ: Mapping[str, str] | None = None) -> None:
    """Raise Unusable unless it is said how each cluster is reached; none of them is asked."""
    wrong = []
    for each in config.kubernetes:
        try:
            access_of(_options(each, ""), os.environ if environ is None else environ, Path.home())
        except NoAccess as error:
            wrong.append(f"cluster {each.cluster}: {error}")
    if wrong:
        raise Unusable("\n".join(wrong))


def identity_for(state: State) -> str:
    """What a book is known by on clusters of others; drawn once for each."""
    return state.facts.identity or secrets.token_hex(8)


def owner_of(identity: str, cluster: ClusterName) -> str:
    """What our objects on one cluster are known by.

    Two clusters may be one namespace under two names, or one that was given another name while things run there: what was made
    under one name is none of the other's, which would else delete what it knows nothing of.
    """
    return hashlib.blake2s(f"{identity}/{cluster}".encode(), digest_size=8).hexdigest()


def open_clusters(config: Config, identity: str, loop: Loop, runner: Runner, blobs: Blobs) -> list[Driving]:
    """All of them, to be run; raises Unusable."""
    keep = OutputArchive(blobs, config.output_limit).keep if config.keep_output else None
    drivings = []
    for each in config.kubernetes:
        try:
            driver = open_cluster(_options(each, identity), os.environ, Path.home(), loop)
        except NoAccess as error:
            raise Unusable(f"cluster {each.cluster}: {error}") from None
        drivings.append(Driving(loop, driver, runner.starts, _manner(each), keep))
    return drivings


async def check_newcomers(drivings: Sequence[Driving], state: State) -> None:
    """Raise Unusable if one cannot be used that never was: it is not as its configuration says.

    One that was used before may be away for a while; the server starts without it.
    """
    newcomers = [each.driver for each in drivings if each.driver.cluster not in state.conditions]
    found = await asyncio.gather(*map(_problems, newcomers))
    if wrong := [line for lines in found for line in lines]:
        raise Unusable("\n".join(wrong))


async def _problems(driver: Driver) -> list[str]:
    return [f"cluster {driver.cluster}: {line}" for line in await driver.check()]


def _options(each: Kubernetes, identity: str) -> Options:
    return Options(
        cluster=each.cluster,
        owner=owner_of(identity, each.cluster),
        kubeconfig=each.kubeconfig,
        context=each.context,
        in_cluster=each.in_cluster,
        namespace=each.namespace,
        image=each.image,
    )


def _manner(each: Kubernetes) -> Manner:
    return Manner(Patience(each.bind_within, each.start_within, each.shun_for, each.keep), each.failed_after)
