"""Serves programs of operators over gRPC: decodes, calls commands, encodes, and nothing else."""

from collections.abc import Sequence
from typing import Any, Final

import grpc
import msgspec

from spillover.api.grpc.methods import MethodBounds, decoded, raw_method
from spillover.api.grpc.people import Asked, ServiceForPeople
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire import clusters_pb2 as pb
from spillover.wire.api import ClusterAction, ClusterRequest, ClusterView, ConfigRequest, JobsThere

SERVICE: Final = "spillover.clusters.v1.Clusters"
_OPEN: Final = "ListClusters"
"""The method that needs no token of role admin."""
_REQUEST: Final = MethodBounds(1 << 20, 1_010)
_JOBS: Final[dict[int, JobsThere]] = {
    pb.JOBS_THERE_UNSPECIFIED: "finish",
    pb.JOBS_THERE_FINISH: "finish",
    pb.JOBS_THERE_MOVE: "move",
    pb.JOBS_THERE_CANCEL: "cancel",
}


class ClustersService(ServiceForPeople):
    """The service for clusters."""

    name = SERVICE

    def handler(self) -> Any:
        """Return all methods, for a server."""
        methods = {
            "ListClusters": _list,
            "AddCluster": _add,
            "DrainClusters": _drain,
            "ResumeClusters": _resume,
            "RemoveClusters": _remove,
            "ApplyConfig": _apply,
        }
        unary = grpc.unary_unary_rpc_method_handler
        handlers = {name: raw_method(unary, self.unary(one, name)) for name, one in methods.items()}
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def check_role(self, method: str, asked: Asked) -> None:
        """Raise unless the caller is an admin, or only lists clusters."""
        if method.rpartition("/")[2] != _OPEN and not asked.admin:
            raise CommandError(ErrorKind.FORBIDDEN, "permission denied; this needs a token of role admin")


async def _list(asked: Asked, raw: bytes) -> pb.ListClustersReply:
    decoded(pb.ListClustersRequest, raw, _REQUEST)
    return pb.ListClustersReply(clusters=[_cluster(view) for view in await asked.commands.clusters()])


async def _add(asked: Asked, raw: bytes) -> pb.AddClusterReply:
    request = decoded(pb.AddClusterRequest, raw, _REQUEST)
    try:
        cluster = msgspec.json.decode(request.document, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise CommandError(ErrorKind.INVALID, "document: is not a JSON object") from None
    wanted = ClusterRequest(cluster, check=not request.unchecked)
    return pb.AddClusterReply(cluster=_cluster(await asked.commands.add_cluster(wanted, asked.user)))


async def _drain(asked: Asked, raw: bytes) -> pb.DrainClustersReply:
    request = decoded(pb.DrainClustersRequest, raw, _REQUEST)
    action = ClusterAction("drain", _some(request.clusters))
    return pb.DrainClustersReply(clusters=(await asked.commands.act_on_clusters(action, asked.user)).clusters)


async def _resume(asked: Asked, raw: bytes) -> pb.ResumeClustersReply:
    request = decoded(pb.ResumeClustersRequest, raw, _REQUEST)
    action = ClusterAction("resume", _some(request.clusters))
    return pb.ResumeClustersReply(
        clusters=(await asked.commands.act_on_clusters(action, asked.user)).clusters
    )


async def _remove(asked: Asked, raw: bytes) -> pb.RemoveClustersReply:
    request = decoded(pb.RemoveClustersRequest, raw, _REQUEST)
    action = ClusterAction("remove", _some(request.clusters), _jobs(request.jobs))
    return pb.RemoveClustersReply(
        clusters=(await asked.commands.act_on_clusters(action, asked.user)).clusters
    )


async def _apply(asked: Asked, raw: bytes) -> pb.ApplyConfigReply:
    request = decoded(pb.ApplyConfigRequest, raw, _REQUEST)
    outcome = await asked.commands.configure(ConfigRequest(request.dry_run, _jobs(request.jobs)), asked.user)
    changes = [
        pb.ConfigChange(what=each.what, change=each.change, text=each.text) for each in outcome.changes
    ]
    return pb.ApplyConfigReply(changes=changes, done=outcome.done)


def _some(clusters: Sequence[str]) -> list[str]:
    if not clusters:
        raise CommandError(ErrorKind.INVALID, "clusters: is empty; name at least one")
    return list(clusters)


def _jobs(there: int) -> JobsThere:
    if there not in _JOBS:
        raise CommandError(
            ErrorKind.INVALID, f"jobs: {there} is not a known value; write FINISH, MOVE or CANCEL"
        )
    return _JOBS[there]


def _cluster(view: ClusterView) -> pb.Cluster:
    return pb.Cluster(
        name=view.name,
        kind=view.kind,
        role=view.role,
        life=view.life,
        nodes=view.agents,
        running=view.running,
        configured=view.configured,
        added_by=view.added_by or "",
        drained_by=view.drained_by or "",
        leaving=view.leaving or "",
        why=view.why or "",
    )
