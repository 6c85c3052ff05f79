"""A MachineDeployment of Cluster API that has one node for each machine of a pool.

Its number of replicas follows the pods and is never counted up or down, so repeated and late requests change nothing. The
replicas are written only if nobody else has written them since they were read, and pods are counted in between. Cluster
API deletes first the machines that carry a certain annotation: those whose nodes have no pod of ours.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from spillover.clusters.kubernetes.api.objects import Meta, Name, Page
from spillover.clusters.kubernetes.api.requests import Api, ApiRefused, Trouble, UnreadableAnswer
from spillover.clusters.kubernetes.checks import Need, lacking

GROUP: Final = "cluster.x-k8s.io"
DEPLOYMENT: Final = f"{GROUP}/deployment-name"
"""Label of the machines of a MachineDeployment."""
DELETE: Final = f"{GROUP}/delete-machine"
"""Annotation of machines that are deleted first."""
CONFLICT: Final = 409
TRIES: Final = 5
"""Most tries to write replicas that others write too."""

NEEDS: Final = (
    *(Need(verb, "machinedeployments", GROUP, "scale") for verb in ("get", "update")),
    *(Need(verb, "machines", GROUP) for verb in ("get", "list", "update")),
)
"""All permissions that it uses."""

Occupied = Callable[[], Awaitable[Sequence[str]]]
"""Asks for the pods that need a node: the node of each, empty for one that waits for it."""


class _Object(Struct, frozen=True, rename="camel"):
    """Base of objects; the JSON names are in camel case."""


class NodeReference(_Object, frozen=True):
    """The node of a machine."""

    name: Name = ""


class MachineStatus(_Object, frozen=True):
    """Status of a machine."""

    node_ref: NodeReference | None = None


class MachineMeta(Meta, frozen=True):
    """Metadata of a machine."""

    annotations: dict[str, str] = field(default_factory=dict)


class Machine(_Object, frozen=True):
    """A machine of Cluster API."""

    metadata: MachineMeta = MachineMeta()
    status: MachineStatus = MachineStatus()

    @property
    def node(self) -> str:
        """The name of its node; empty if it has none yet."""
        return "" if self.status.node_ref is None else self.status.node_ref.name

    @property
    def is_marked(self) -> bool:
        """Whether Cluster API deletes it before others."""
        return DELETE in self.metadata.annotations


class Served:
    """How a cluster serves Cluster API: in the version that it prefers."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._version = ""

    async def version(self) -> str:
        """Return the version with its group, such as cluster.x-k8s.io/v1beta2; raise Trouble."""
        if not self._version:
            group = await self.api.read(_GROUPS, "GET", f"/apis/{GROUP}")
            self._version = group.preferred_version.group_version
        return self._version

    def forget(self) -> None:
        """Ask for the version again when it is next needed."""
        self._version = ""

    async def path(self, namespace: str, what: str) -> str:
        """Return the path of something in a namespace; raise Trouble."""
        return f"/apis/{await self.version()}/namespaces/{namespace}/{what}"


class Machines:
    """Some machines of Cluster API, by their labels."""

    def __init__(self, served: Served, namespace: str, labels: Mapping[str, str]) -> None:
        self._served = served
        self._namespace = namespace
        self._labels = labels

    async def there(self) -> list[Machine]:
        """Return the machines that are not being deleted; raise Trouble."""
        asked = {"labelSelector": ",".join(f"{key}={value}" for key, value in self._labels.items())}
        path = await self._served.path(self._namespace, "machines")
        page = await self._served.api.read(_MACHINES, "GET", path, asked)
        return [each for each in page.items if each.metadata.deletion_timestamp is None]

    async def mark(self, there: Sequence[Machine], chosen: Sequence[Machine]) -> None:
        """Let Cluster API delete these machines first, and no others that were marked before; raise Trouble."""
        names = {each.metadata.name for each in chosen}
        for each in there:
            wanted = each.metadata.name in names
            if wanted != each.is_marked:
                await self._mark(each.metadata.name, wanted=wanted)

    async def _mark(self, machine: str, *, wanted: bool) -> None:
        path = await self._served.path(self._namespace, f"machines/{machine}")
        there = await self._served.api.read(ANY, "GET", path)
        meta = there.get("metadata")
        if not isinstance(meta, dict):
            raise UnreadableAnswer(f"the machine {machine} has no metadata")
        notes = dict(meta.get("annotations") or {})
        notes.pop(DELETE, None)
        meta["annotations"] = notes | ({DELETE: "spillover"} if wanted else {})
        await self._served.api.ask("PUT", path, body=there, once=True)


class _Version(Struct, frozen=True):
    group_version: str = field(default="", name="groupVersion")


class _Group(Struct, frozen=True):
    preferred_version: _Version = field(default=_Version(), name="preferredVersion")


class _Replicas(Struct, frozen=True):
    replicas: int = 0


class _Scale(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: _Replicas = _Replicas()


_GROUPS: Final = msgspec.json.Decoder(_Group)
_SCALES: Final = msgspec.json.Decoder(_Scale)
_MACHINES: Final = msgspec.json.Decoder(Page[Machine])
ANY: Final = msgspec.json.Decoder(dict[str, Any])
"""Decodes an object that is written back with what we do not know about it."""


class NodeGroup:
    """One MachineDeployment."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._served = Served(api)
        self._machines = Machines(self._served, namespace, {DEPLOYMENT: name})
        self._scaling = asyncio.Lock()

    async def follow(self, occupied: Occupied) -> None:
        """Give each pod one node, and no more nodes than that; raise Trouble."""
        async with self._scaling:
            for tried in range(TRIES):
                try:
                    await self._follow(occupied)
                except ApiRefused as refused:
                    if refused.code != CONFLICT or tried == TRIES - 1:
                        raise
                else:
                    return

    async def check(self) -> list[str]:
        """Return why it cannot be scaled, one line each with what to do."""
        if found := await lacking(self._api, self._namespace, NEEDS):
            return found
        try:
            await self._scale()
            await self._machines.there()
        except ApiRefused as refused:
            if refused.code == 404:
                shows = "`kubectl get machinedeployments -A` shows those there are"
                where = f"in namespace {self._namespace!r}"
                return [f"there is no MachineDeployment {self._name!r} {where}; {shows}"]
            return [f"the MachineDeployment {self._name} cannot be scaled: {refused}"]
        except Trouble as error:
            return [str(error)]
        return []

    async def _follow(self, occupied: Occupied) -> None:
        scale = await self._scale()
        nodes = await occupied()
        surplus = scale.spec.replicas - len(nodes)
        if surplus == 0:
            return
        if surplus > 0:
            await self._choose(nodes, surplus)
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "resourceVersion": scale.metadata.resource_version,
            },
            "spec": {"replicas": len(nodes)},
        }
        await self._api.ask("PUT", await self._path(), body=body, once=True)

    async def _choose(self, nodes: Sequence[str], surplus: int) -> None:
        """Mark so many machines whose nodes have no pod of ours, and no others, as before a try that failed."""
        there = await self._machines.there()
        idle = [each for each in there if not each.node or each.node not in nodes]
        # One without a node has cost least, and a pod that waits may take a node that is there.
        idle.sort(key=lambda each: (bool(each.node), each.metadata.name))
        await self._machines.mark(there, idle[:surplus])

    async def _scale(self) -> _Scale:
        return await self._api.read(_SCALES, "GET", await self._path())

    async def _path(self) -> str:
        return await self._served.path(self._namespace, f"machinedeployments/{self._name}/scale")
