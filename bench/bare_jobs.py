"""The floor of running Jobs on Kubernetes: creates them over plain HTTP and watches them until they are complete."""

import asyncio
import json
import ssl
import time
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import msgspec
from msgspec import Struct

from tests.support.kube import Cluster

AT_ONCE: Final = 32
"""Requests to one cluster at a time: what Spillover allows itself."""


class _Condition(Struct, frozen=True):
    type: str
    status: str


class _Status(Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Meta(Struct, frozen=True, rename="camel"):
    name: str
    resource_version: str


class _Job(Struct, frozen=True):
    metadata: _Meta
    status: _Status = _Status()


class _Change(Struct, frozen=True):
    type: str
    object: _Job


def run_bare(homes: Sequence[tuple[Cluster, str]], job: dict[str, Any], count: int) -> float:
    """Run so many Jobs, spread evenly over the namespaces; return the seconds since the first request."""
    return asyncio.run(_run(homes, job, count))


async def _run(homes: Sequence[tuple[Cluster, str]], job: dict[str, Any], count: int) -> float:
    begin = time.monotonic()
    shares = [count // len(homes) + (at < count % len(homes)) for at in range(len(homes))]
    await asyncio.gather(*(_on(*home, job, share) for home, share in zip(homes, shares, strict=True)))
    return time.monotonic() - begin


async def _on(cluster: Cluster, namespace: str, job: dict[str, Any], count: int) -> None:
    """Run all Jobs of one cluster."""
    url = f"{cluster.url}/apis/batch/v1/namespaces/{namespace}/jobs"
    trust = ssl.create_default_context(cafile=str(cluster.ca))
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {cluster.token}"},
        connector=aiohttp.TCPConnector(ssl=trust, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=2**20,
    ) as session:
        async with session.get(url) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        numbers = iter(range(count))

        async def make() -> None:
            for number in numbers:
                named = job | {"metadata": job["metadata"] | {"name": f"bare-{number}"}}
                async with session.post(
                    url, data=json.dumps(named), headers={"Content-Type": "application/json"}
                ) as answer:
                    answer.raise_for_status()
                    await answer.read()

        async with asyncio.TaskGroup() as group:
            group.create_task(_watch(session, url, version, count))
            for _ in range(AT_ONCE):
                group.create_task(make())


async def _watch(session: aiohttp.ClientSession, url: str, version: str, count: int) -> None:
    """Wait until so many Jobs are complete. Continue a watch that the server ends."""
    decoder = msgspec.json.Decoder(_Change)
    complete: set[str] = set()
    while len(complete) < count:
        params = {"watch": "true", "resourceVersion": version}
        async with session.get(url, params=params) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                job = decoder.decode(line).object
                version = job.metadata.resource_version
                if any(one.type == "Complete" and one.status == "True" for one in job.status.conditions):
                    complete.add(job.metadata.name)
                    if len(complete) == count:
                        return
