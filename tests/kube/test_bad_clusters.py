"""Clusters that cannot be used as they are written: one clear line a problem, and exit code 2 where a server would start."""

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.support.kube import Cluster
from tests.support.kube.identities import Access, write_kubeconfig
from tests.support.kube.serving import PATIENCE, Serving, a_job
from tests.support.processes import ServerProcess, free_ports, write_config


def refused(folder: Path, *clusters: str) -> list[str]:
    """What `spill up` says of clusters that it cannot use, line by line."""
    options = [word for cluster in clusters for word in ("--cluster", cluster)]
    done = ServerProcess(folder).spill("up", *write_config(folder), *options, timeout=PATIENCE)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()


def reached(path: Path, access: Access) -> str:
    """An option for one cluster, by a kubeconfig that is written."""
    write_kubeconfig(path, [access])
    return f"onprem=kubernetes:kubeconfig={path},owned"


def a_token(cluster: Cluster, *, ends_in: int) -> str:
    """The token of a cluster, signed again with another end, in seconds from now."""
    head, body, _ = cluster.token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    now = int(time.time())
    claims |= {"iat": now - 7200, "nbf": now - 7200, "exp": now + ends_in}
    signed = f"{head}.{_part(json.dumps(claims).encode())}"
    key = serialization.load_pem_private_key((cluster.folder / "tokens-key.pem").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{_part(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_tokens_that_are_signed_here_are_good_but_for_their_end(onprem: Cluster) -> None:
    with onprem.client(a_token(onprem, ends_in=3600)) as known:
        assert known.get("/api/v1/nodes").status_code == 200


def test_a_cluster_that_is_not_there(onprem: Cluster, tmp_path: Path) -> None:
    [port] = free_ports(1)
    nowhere = replace(onprem.access, url=f"https://127.0.0.1:{port}")
    [line] = refused(tmp_path, reached(tmp_path / "kubeconfig", nowhere))
    assert line.startswith(f"spill: cluster onprem: cannot connect to https://127.0.0.1:{port}: ")


@pytest.mark.parametrize("kind", ["wrong", "expired"])
def test_a_token_that_is_not_one(onprem: Cluster, tmp_path: Path, kind: str) -> None:
    token = "no-token-at-all" if kind == "wrong" else a_token(onprem, ends_in=-3600)
    [line] = refused(tmp_path, reached(tmp_path / "kubeconfig", replace(onprem.access, token=token)))
    assert line.startswith(
        "spill: cluster onprem: the API server rejected the credentials (401 Unauthorized)"
    )
    assert "is invalid or has expired" in line
    assert token not in line


def test_a_certificate_that_is_not_of_its_authority(onprem: Cluster, cloud: Cluster, tmp_path: Path) -> None:
    [line] = refused(tmp_path, reached(tmp_path / "kubeconfig", replace(onprem.access, ca=cloud.ca)))
    assert line.startswith(f"spill: cluster onprem: {onprem.url} has a certificate that is not trusted")


def test_a_namespace_that_is_missing(onprem: Cluster, tmp_path: Path) -> None:
    option = reached(tmp_path / "kubeconfig", replace(onprem.access, namespace="nowhere"))
    [line] = refused(tmp_path, option)
    assert line == (
        "spill: cluster onprem: there is no namespace 'nowhere'; create it with `kubectl create namespace "
        "nowhere`, or set `namespace`"
    )


@pytest.fixture
def namespace(onprem: Cluster) -> Iterator[str]:
    name = onprem.namespace("bad")
    yield name
    onprem.remove_namespace(name)


def test_what_may_not_be_done_is_named_verb_by_verb(onprem: Cluster, namespace: str, tmp_path: Path) -> None:
    """The role `view` may look at nearly everything in namespaces, and change nothing."""
    token = onprem.service_account("viewer", namespace, role="view")
    option = reached(tmp_path / "kubeconfig", replace(onprem.access, token=token, namespace=namespace))
    lines = refused(tmp_path, option)
    told = "".join(f"{line}\n" for line in lines)
    assert f"cluster onprem: no permission to create jobs in namespace '{namespace}'" in told
    assert f"cluster onprem: no permission to delete pods in namespace '{namespace}'" in told
    assert "cluster onprem: no permission to watch nodes in all namespaces" in told
    assert "list pods" not in told


def test_a_context_that_is_not_known(
    both: tuple[Cluster, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", [cluster.access for cluster in both])
    monkeypatch.setenv("KUBECONFIG", str(path))
    lines = refused(tmp_path, "a=kubernetes:context=nobody", "b=kubernetes:context=onprem")
    assert lines == [f"spill: cluster a: {path} has no context 'nobody'; known contexts: cloud, onprem"]


def test_two_clusters_with_one_name(tmp_path: Path) -> None:
    lines = refused(tmp_path, "onprem=kubernetes:owned", "onprem=kubernetes:rented")
    [line] = lines
    assert "--cluster onprem=kubernetes:rented" in line
    assert "is already the name of another cluster" in line


def test_all_clusters_that_cannot_be_used_are_told_at_once(
    onprem: Cluster, cloud: Cluster, tmp_path: Path
) -> None:
    one = reached(tmp_path / "one", replace(onprem.access, token="wrong"))
    other = reached(tmp_path / "other", replace(cloud.access, namespace="nowhere"))
    lines = refused(tmp_path, one, other.replace("onprem=", "cloud=").replace("owned", "rented"))
    assert [line.split(": ")[1] for line in lines] == ["cluster onprem", "cluster cloud"]


def test_a_cluster_that_locks_us_out_later_says_so_and_the_server_starts_all_the_same(
    onprem: Cluster, tmp_path: Path
) -> None:
    told: dict[str, Any] = {"kubernetes": {"failed_after": "1s"}}
    with Serving(tmp_path / "server", {"onprem": (onprem, told)}) as served:
        served.kill()
        config = tmp_path / "server" / "spill.yaml"
        path = write_kubeconfig(
            tmp_path / "kubeconfig", [replace(onprem.access, token=a_token(onprem, ends_in=-3600))]
        )
        config.write_text(config.read_text().replace(str(onprem.kubeconfig), str(path)))
        served.launch()
        why = served.await_state("onprem", "DEGRADED", "FAILED").why
        assert why is not None
        assert "is invalid or has expired" in why
        [job] = served.submit(a_job())
        assert "is invalid or has expired" in served.reason(job, "cluster_down")
        listed = served.server.spill("clusters", timeout=PATIENCE)
        assert listed.returncode == 0
        assert "401 Unauthorized" in listed.stdout + listed.stderr
