"""Watches a namespace independently of the server, and remembers every Job and pod that ever existed.

It asks the API server directly, without a proxy and with none of our other code. A killed API server forgets its
watches. The witness then lists everything again, and misses nothing, because nothing changes while the API server is
down.
"""

import json
import threading
from collections import defaultdict
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.support.kube.cluster import Cluster

SILENCE: Final = 1.0
"""Seconds of silence after which a watch checks whether to end."""
JOB: Final = "spillover.dev/job"
_GROUPS: Final = {"jobs": "/apis/batch/v1", "pods": "/api/v1"}


class Witness:
    """Watches one namespace while its block runs."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.made: defaultdict[str, set[str]] = defaultdict(set)
        """Names of Jobs, with the uid of each Job that had the name."""
        self.ran: defaultdict[str, set[str]] = defaultdict(set)
        """Ids of our jobs, with the uid of each pod that started for it."""
        self.under: defaultdict[str, set[str]] = defaultdict(set)
        """Ids of our jobs, with the uid of each Job of which a pod started."""
        self._cluster = cluster
        self._namespace = namespace
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_up, args=(kind,), daemon=True) for kind in _GROUPS
        ]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def _keep_up(self, kind: str) -> None:
        """List and watch one kind until the end."""
        path = f"{_GROUPS[kind]}/namespaces/{self._namespace}/{kind}"
        with self._cluster.client(self._cluster.token) as client:
            version = ""
            while not self._over.is_set():
                try:
                    version = self._watch(client, path, kind, version or self._list(client, path, kind))
                except (httpx.TransportError, httpx.HTTPStatusError):
                    version = ""
                    self._over.wait(0.2)

    def _list(self, client: httpx.Client, path: str, kind: str) -> str:
        """Record all objects; return the version of the list."""
        page = client.get(path).raise_for_status().json()
        for each in page["items"]:
            self._take(kind, each)
        version: str = page["metadata"]["resourceVersion"]
        return version

    def _watch(self, client: httpx.Client, path: str, kind: str, version: str) -> str:
        """Record changes until a silence; return the version, or an empty one if everything must be listed again."""
        params = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        patience = httpx.Timeout(60, read=SILENCE)
        try:
            with client.stream("GET", path, params=params, timeout=patience) as answer:
                for line in answer.raise_for_status().iter_lines():
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        return ""
                    if change["type"] != "BOOKMARK":
                        self._take(kind, change["object"])
                    version = change["object"]["metadata"]["resourceVersion"]
        except httpx.ReadTimeout:
            pass
        return version

    def _take(self, kind: str, thing: dict[str, Any]) -> None:
        meta = thing["metadata"]
        if kind == "jobs":
            self.made[meta["name"]].add(meta["uid"])
        elif _began(thing):
            job = meta.get("labels", {}).get(JOB, meta["name"])
            self.ran[job].add(meta["uid"])
            self.under[job] |= {owner["uid"] for owner in meta.get("ownerReferences", ())}


def _began(pod: dict[str, Any]) -> bool:
    """Tell whether a container of a pod runs or ran."""
    states = [each["state"] for each in pod["status"].get("containerStatuses", ())]
    return any("running" in state or "terminated" in state for state in states)
