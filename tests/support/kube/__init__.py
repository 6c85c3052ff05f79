"""Real Kubernetes clusters for tests: control planes of a current release, with nodes that KWOK simulates.

`make kube` builds the programs; `find_binaries` raises `NotBuilt` without them. A cluster starts in seconds, on loopback only:

    with Cluster("onprem") as onprem:                      # or: with clusters("onprem", "cloud") as (onprem, cloud)
        onprem.add_nodes(3, cpu="8", memory="32Gi", gpu=1, labels={"pool": "a"}, taints=["dedicated=batch:NoSchedule"])
        namespace = onprem.namespace()                     # for one test, because clusters are shared
        onprem.admin.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", json={...})   # an httpx.Client

`remove_namespace` and `remove_nodes` delete what a test has created.

Access: `url`, `ca`, `token` (full access), `admin_certificate`, `kubeconfig` (its context is the name of the cluster),
`service_account(name, namespace, role)` for a token with fewer rights, `client(token)`. `merge_kubeconfigs(path, clusters)`
writes a file with several contexts.

`serving.Serving` is a server above such clusters, with its own namespace on each. `witness.Witness` counts what really ran.
`kubelet.Kubelet` runs pods of a namespace as real processes.

The programs are `etcd`, `apiserver`, `controllers`, `scheduler` and `kwok`. Each has `kill()` (SIGKILL), `start()`, `restart()`,
`pause()`, `resume()`, `pid` and `log`. Without KWOK, nodes are lost after 50 s. Calls block; a coroutine uses
`asyncio.to_thread`. Everything is gone when the block ends, or when the process that started it is killed.

Annotations of a pod (in a Job: of its template) set how it runs on a simulated node. The default is in brackets:

    spillover.test/starts-after: 2s             time in Pending after it was bound [none]
    spillover.test/never-starts: ErrImagePull   stays Pending, with containers that wait for this reason [starts]
    spillover.test/runs-for: 2s                 time until it ends; `forever` means never [500ms]
    spillover.test/exit-code: "3"               of all its containers ["0"]
    spillover.test/reason: OOMKilled            why they ended [Completed or Error]; OOMKilled implies exit code 137
    spillover.test/evicted: out of memory       the node evicts it, with this message and a DisruptionTarget condition
    spillover.test/stops-in: 3s                 time until it ends after deletion, with exit code 143 [none]

Pods of jobs in our own form have no such annotations. The variable `RUNS_FOR` of their first container sets their time.

Times have the format of Go (`1m30s`, `200ms`). Pods with `restartPolicy: Always` keep running; `OnFailure` counts as `Never`.
Their output is the last text of `write_log(text)`. Unlike with a kubelet, a follower does not learn that a pod has ended.
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
