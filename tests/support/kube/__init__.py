"""Real Kubernetes clusters for tests: etcd, API server, controllers and scheduler of a current release, with nodes that KWOK plays.

`make kube` gets the programs; `find_binaries` raises `NotBuilt` where they are not. A cluster starts in seconds, on loopback alone:

    with Cluster("onprem") as onprem:                      # or: with clusters("onprem", "cloud") as (onprem, cloud)
        onprem.add_nodes(3, cpu="8", memory="32Gi", gpu=1, labels={"pool": "a"}, taints=["dedicated=batch:NoSchedule"])
        namespace = onprem.namespace()                     # of a test: clusters are shared; see remove_namespace, remove_nodes
        onprem.admin.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", json={...})   # an httpx.Client

Reaching it: `url`, `ca`, `token` (may do everything), `admin_certificate`, `kubeconfig` (context: the name), `service_account(name,
namespace, role)` for a token with less, `client(token)`. `merge_kubeconfigs(path, clusters)` writes a file with several contexts.

A server above such clusters, with a namespace of its own on each, is `serving.Serving`; `witness.Witness` counts what really ran.

Its programs are `etcd`, `apiserver`, `controllers`, `scheduler` and `kwok`, each with `kill()` (-9), `start()`, `restart()`, `pause()`, `resume()`,
`pid`, `log`. Without KWOK, nodes are lost after 50 s. Calls block; a coroutine uses `asyncio.to_thread`. When the block ends, or
the process that started it is killed, everything is gone.

Annotations of a pod say how it runs on a played node (in a Job: of its template):

    spillover.test/starts-after: 2s             it is Pending for so long after it was placed; at once
    spillover.test/never-starts: ErrImagePull   it stays Pending, its containers waiting with this reason
    spillover.test/runs-for: 2s                 then it ends; 500ms; `forever`: it does not
    spillover.test/exit-code: "3"               of all its containers; "0"
    spillover.test/reason: OOMKilled            why they ended; Completed, or Error. OOMKilled has 137 as its usual exit code
    spillover.test/evicted: out of memory       the node fails the pod: Evicted, with this message and a DisruptionTarget condition
    spillover.test/stops-in: 3s                 how long it takes to end once it is deleted; at once. Then its exit code is 143

Times are those of Go (`1m30s`, `200ms`). Pods with `restartPolicy: Always` run on; `OnFailure` is taken for `Never`. Their output is
what `write_log(text)` said last; who follows it is not told that a pod has ended, as a kubelet would.
"""

from tests.support.kube.binaries import NotBuilt, find_binaries
from tests.support.kube.cluster import Cluster
from tests.support.kube.component import Component, NotStarted
from tests.support.kube.several import clusters, merge_kubeconfigs

__all__ = [
    "Cluster",
    "Component",
    "NotBuilt",
    "NotStarted",
    "clusters",
    "find_binaries",
    "merge_kubeconfigs",
]
