"""Runs several clusters at once."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.kube.cluster import Cluster
from tests.support.kube.identities import write_kubeconfig


@contextmanager
def clusters(*names: str) -> Iterator[tuple[Cluster, ...]]:
    """Start clusters with these names in parallel."""
    with ExitStack() as stack:
        made = []
        for name in names:
            made.append(Cluster(name))
            stack.callback(made[-1].stop)
        with ThreadPoolExecutor(len(made)) as pool:
            for started in [pool.submit(each.start) for each in made]:
                started.result()
        yield tuple(made)


def merge_kubeconfigs(path: Path, several: Sequence[Cluster]) -> Path:
    """Write a kubeconfig with a context for each cluster; the first is the current one."""
    return write_kubeconfig(path, [each.access for each in several])
