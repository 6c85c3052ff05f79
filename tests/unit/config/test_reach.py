"""Who can reach a server: only those who can trust it; and what this machine has to give."""

from pathlib import Path

import pytest

from spillover.clusters.agents import machine
from spillover.config.config import Tls
from spillover.config.read import read_config
from spillover.forms.problems import BadForm

HEAD = "apiVersion: spillover/v1\nkind: Config\n"
TLS = "tls: {cert: c.pem, key: k.pem}\n"


def test_with_tls_any_address_is_taken_and_hosts_are_read() -> None:
    config = read_config(
        HEAD
        + TLS
        + "http: 0.0.0.0:1\ngrpc: '[2001:db8::1]:2'\nhosts: [Build.Example, 10.0.0.5, '2001:db8::1']\n"
    )
    assert config.tls == Tls("c.pem", "k.pem", None)
    assert (config.http.is_any, config.http.is_loopback, str(config.grpc)) == (True, False, "[2001:db8::1]:2")
    assert config.hosts == ("build.example", "10.0.0.5", "[2001:db8::1]")


@pytest.mark.parametrize("address", ["0.0.0.0:1", "10.0.0.5:1", "'[::]:1'"])
@pytest.mark.parametrize("port", ["http", "grpc"])
def test_without_tls_nobody_else_is_let_near(address: str, port: str) -> None:
    with pytest.raises(BadForm, match=f"{port}: .* is not a loopback address and needs TLS"):
        read_config(f"{HEAD}{port}: {address}\n")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "'[::1]:1'"])
def test_loopback_needs_none(address: str) -> None:
    assert read_config(f"{HEAD}http: {address}\n").http.is_loopback


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tls: {cert: c.pem}\n", "tls.key"),
        ("tls: {cert: '', key: k}\n", "tls.cert"),
        ("tls: {cert: c, key: k, chain: x}\n", "tls.chain"),
        (TLS + "hosts: ['a b']\n", "hosts"),
        (TLS + "hosts: ['a:80']\n", "hosts"),
        (TLS + "http: example.org:1\n", "'example.org' is not an IP address"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadForm) as bad:
        read_config(HEAD + text)
    assert says in str(bad.value)


def test_a_machine_has_what_its_container_leaves(tmp_path: Path) -> None:
    there, size = machine.cpus(tmp_path), machine.memory(tmp_path)
    assert there >= 1
    assert size > 2**20
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("1048576\n")
    assert (machine.cpus(tmp_path), machine.memory(tmp_path)) == (1, 2**20)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (machine.cpus(tmp_path), machine.memory(tmp_path)) == (there, size)
    (tmp_path / "cpu.max").write_text("99000000 100000\n")
    assert machine.cpus(tmp_path) == there


def test_the_older_kind_of_container_counts_too(tmp_path: Path) -> None:
    there, size = machine.cpus(tmp_path), machine.memory(tmp_path)
    for folder in ("cpu", "memory"):
        (tmp_path / folder).mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    assert (machine.cpus(tmp_path), machine.memory(tmp_path)) == (there, size)
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("2097152\n")
    assert (machine.cpus(tmp_path), machine.memory(tmp_path)) == (1, 2**21)
