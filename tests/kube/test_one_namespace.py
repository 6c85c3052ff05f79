"""Two names for one namespace: what was made under one of them is left alone by the other."""

from pathlib import Path

from tests.support.kube import Cluster
from tests.support.kube.serving import Serving, a_job


def test_clusters_that_are_one_namespace_leave_each_others_jobs_alone(
    onprem: Cluster, tmp_path: Path
) -> None:
    shared = {"namespace": onprem.namespace("shared")}
    nodes = onprem.add_nodes(1, cpu="8", memory="32Gi")
    try:
        with Serving(
            tmp_path / "server",
            {"day": (onprem, {"kubernetes": shared}), "night": (onprem, {"kubernetes": shared})},
        ) as served:
            ended = served.run(a_job(runs_for="3s"))
            assert (ended.state, ended.attempt) == ("SUCCEEDED", 1)
    finally:
        onprem.remove_nodes(nodes)
        onprem.remove_namespace(shared["namespace"])
