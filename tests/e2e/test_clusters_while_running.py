"""Clusters are added, drained, resumed and removed on a real server with real agents, while another one runs jobs."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from spillover.clusters.kinds import BUILT_IN
from spillover.core.events import ClusterAdded, ClusterRemoved, ClustersConfigured, JobRequeued
from spillover.wire import clusters_pb2 as pb
from tests.support.processes import ServerProcess, read_journal, wait_until

Servers = Callable[..., ServerProcess]
ONPREM = {"name": "onprem", "local": [{"name": "n1", "cpu": 2, "queue": 0}]}
LAB = {"name": "lab", "labels": {"room": "two"}, "local": [{"name": "m1", "cpu": 1, "queue": 0}]}
JOB = "apiVersion: spillover/v1\nkind: Job\nmetadata: {name: NAME}\nspec: {run: 'RUN', where: {cluster: CLUSTER}}\n"


def submit(server: ServerProcess, name: str, run: str, cluster: str, *options: str) -> int:
    text = JOB.replace("NAME", name).replace("RUN", run).replace("CLUSTER", cluster)
    return server.spill("submit", "-", *options, typed=text).returncode


def shown(server: ServerProcess, *words: str) -> Any:
    done = server.spill(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def cluster(server: ServerProcess, name: str) -> dict[str, Any] | None:
    return next((each for each in shown(server, "clusters") if each["name"] == name), None)


def state(server: ServerProcess, job: str) -> str:
    return str(shown(server, "show", job)["state"])


def ok(server: ServerProcess, *words: str, typed: str | None = None) -> str:
    done = server.spill(*words) if typed is None else server.spill(*words, typed=typed)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def refused(server: ServerProcess, *words: str, lines: int = 1) -> str:
    done = server.spill(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, lines), done.stderr
    return str(done.stderr)


def test_a_cluster_lives_and_goes_while_another_runs_jobs_without_interruption(servers: Servers) -> None:
    server = servers(clusters=[ONPREM]).up()
    submit(server, "long", "sleep 300", "onprem")
    wait_until(lambda: state(server, "long") == "RUNNING", "the long job runs")
    ok(server, "clusters", "add", "--file", "-", typed=json.dumps(LAB))
    wait_until(lambda: (cluster(server, "lab") or {}).get("state") == "READY", "the cluster is ready")
    lab = cluster(server, "lab")
    assert lab is not None
    assert (lab["life"], lab["configured"], lab["labels"]) == ("ready", False, {"room": "two"})
    assert lab["added_by"]
    assert submit(server, "first", "echo hello", "lab", "--wait") == 0

    submit(server, "stays", "sleep 2", "lab")
    wait_until(lambda: state(server, "stays") == "RUNNING", "it runs there")
    ok(server, "clusters", "drain", "lab")
    submit(server, "next", "true", "lab")
    assert "lab was drained by " in ok(server, "why", "next")
    assert server.spill("wait", "stays").returncode == 0, "what runs there goes on"
    assert state(server, "next") == "QUEUED"
    assert "`spill clusters resume lab`" in ok(server, "clusters") + server.spill("clusters").stderr

    long = shown(server, "show", "long")
    assert (long["state"], long["attempt"]) == ("RUNNING", 1)

    server.stop()
    server.up()
    found = cluster(server, "lab")
    assert found is not None
    assert (found["life"], found["state"]) == ("draining", "DRAINING"), "a restart changes nothing"
    ok(server, "clusters", "resume", "lab")
    assert server.spill("wait", "next").returncode == 0

    submit(server, "moves", "sleep 300", "lab")
    wait_until(lambda: state(server, "moves") == "RUNNING", "it runs there")
    agent = shown(server, "agents")
    assert {each["cluster"] for each in agent} == {"onprem", "lab"}
    ok(server, "clusters", "remove", "lab")
    assert cluster(server, "lab") is not None, "it waits for what runs"
    ok(server, "clusters", "remove", "lab", "--move")
    wait_until(lambda: cluster(server, "lab") is None, "the cluster is gone")
    assert state(server, "moves") == "QUEUED"
    wait_until(lambda: {each["cluster"] for each in shown(server, "agents")} == {"onprem"}, "so is its agent")
    assert submit(server, "after", "true", "onprem", "--wait") == 0
    ok(server, "cancel", "moves")
    server.stop()
    events = read_journal(server.data)
    assert len([each for each in events if isinstance(each, ClustersConfigured)]) == 1
    assert [type(each) for each in events if isinstance(each, ClusterAdded | ClusterRemoved)] == [
        ClusterAdded,
        ClusterRemoved,
    ]


def test_other_clusters_notice_nothing_of_it(servers: Servers) -> None:
    server = servers(clusters=[ONPREM]).up()
    submit(server, "long", "sleep 300", "onprem")
    wait_until(lambda: state(server, "long") == "RUNNING", "the long job runs")
    for _ in range(2):
        ok(server, "clusters", "add", "lab=agents:owned")
        ok(server, "clusters", "remove", "lab", "--cancel")
        wait_until(lambda: cluster(server, "lab") is None, "the cluster is gone")
    assert state(server, "long") == "RUNNING"
    assert shown(server, "show", "long")["attempt"] == 1
    assert not [each for each in read_journal_live(server) if each["type"] == "job_requeued"]
    assert JobRequeued.__struct_config__.tag == "job_requeued"


def read_journal_live(server: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ok(server, "events", "--json").splitlines() if line.startswith("{")]


def test_what_makes_no_sense_is_told_in_one_line(servers: Servers, tmp_path: Path) -> None:
    server = servers(clusters=[ONPREM]).up()
    assert "cluster 'onprem' already exists" in refused(server, "clusters", "add", "onprem=agents")
    assert "there is no cluster 'nope'; known clusters: onprem" in refused(
        server, "clusters", "drain", "nope"
    )
    assert "'onprem' is in the configuration file" in refused(server, "clusters", "remove", "onprem")
    assert f"'nomad' must be {' or '.join(BUILT_IN)}" in refused(server, "clusters", "add", "x=nomad")
    assert "no cluster to add" in refused(server, "clusters", "add")
    assert "no cluster to drain" in refused(server, "clusters", "drain")
    assert "--move is only allowed with" in refused(server, "clusters", "drain", "onprem", "--move")
    file = tmp_path / "lab.yaml"
    file.write_text(yaml.safe_dump({"name": "lab", "local": [{"name": "n1", "cpu": 1}]}))
    assert "'n1' is the name of an agent of onprem" in refused(server, "clusters", "add", "-f", str(file))
    kube = tmp_path / "none"
    told = refused(server, "clusters", "add", f"k=kubernetes:kubeconfig={kube},context=x")
    assert "cluster k: " in told
    submitter = json.loads(ok(server, "token", "create", "--role", "submit", "--json"))
    (tmp_path / "submitter").write_text(submitter["token"])
    (tmp_path / "submitter").chmod(0o600)
    told = refused(server, "clusters", "drain", "onprem", "--token-file", str(tmp_path / "submitter"))
    assert "role admin" in told
    assert [each["name"] for each in shown(server, "clusters")] == ["onprem"]


@pytest.mark.parametrize("by", ["command", "signal"])
def test_the_configuration_is_applied_without_a_restart(servers: Servers, tmp_path: Path, by: str) -> None:
    server = servers(clusters=[ONPREM, LAB]).up()
    ok(server, "clusters", "add", "extra=agents:owned")
    file = tmp_path / "spill.yaml"
    config = yaml.safe_load(file.read_text())
    assert shown(server, "config", "diff")["changes"][0]["change"] == "kept"
    ok(server, "config", "check", str(file))
    file.write_text(yaml.safe_dump({**config, "clusters": [ONPREM, LAB, {"name": "extra"}]}))
    (extra,) = shown(server, "config", "diff")["changes"]
    assert extra["text"].startswith("now managed by the configuration file (")
    assert extra["text"].endswith(" added it)")
    config["clusters"] = [
        {**ONPREM, "labels": {"room": "one"}},
        {"name": "cloud", "role": "rented", "price": {"cpu_hour": 1}},
    ]
    config["policy"] = {"order": "priority"}
    config["retention"] = {"logs": "1d"}
    file.write_text(yaml.safe_dump(config))
    outcome = shown(server, "config", "diff")
    assert not outcome["done"]
    assert {(each["what"], each["change"]) for each in outcome["changes"]} == {
        ("cluster onprem", "changed"),
        ("cluster cloud", "added"),
        ("cluster lab", "removed"),
        ("cluster extra", "kept"),
        ("policy", "changed"),
        ("retention", "restart"),
    }
    assert [each["name"] for each in shown(server, "clusters")] == ["onprem", "lab", "extra"]
    if by == "signal":
        server.process.send_signal(signal.SIGHUP)
    else:
        assert shown(server, "config", "apply")["done"]
    wait_until(lambda: cluster(server, "lab") is None, "the cluster is gone")
    assert [each["name"] for each in shown(server, "clusters")] == ["onprem", "extra", "cloud"]
    onprem = cluster(server, "onprem")
    assert onprem is not None
    assert onprem["labels"] == {"room": "one"}
    assert "order=priority" in shown(server, "policy", "show")["policy"]
    assert {each["change"] for each in shown(server, "config", "diff")["changes"]} == {"kept", "restart"}
    file.write_text(file.read_text() + "colour: red\nsize: 1\n")
    checked = refused(server, "config", "check", str(file), lines=2)
    line = len(file.read_text().splitlines())
    assert f"{file}:{line - 1}: colour: unknown field" in checked
    assert f"{file}:{line}: size: unknown field" in checked
    for action in ("diff", "apply"):
        assert refused(server, "config", action, lines=2) == checked
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "did not apply the configuration" in server.last_words(), "it says so")
    assert submit(server, "after", "true", "onprem", "--wait") == 0


def test_so_it_is_over_grpc(servers: Servers) -> None:
    server = servers(clusters=[ONPREM]).up()
    where = json.loads((server.data / "server.json").read_text())
    token = (server.data / "token").read_text().strip()
    submitter = json.loads(ok(server, "token", "create", "--role", "submit", "--json"))["token"]

    with grpc.insecure_channel(where["grpc"]) as channel:

        def call(name: str, request: Any, reply: Any, shown_token: str = token) -> Any:
            method = channel.unary_unary(
                f"/spillover.clusters.v1.Clusters/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=reply.FromString,
            )
            metadata = (("authorization", f"Bearer {shown_token}"), ("spill-user", "ada"))
            return method(request, timeout=20, metadata=metadata)

        def listed(shown_token: str = token) -> list[tuple[str, str]]:
            reply = call("ListClusters", pb.ListClustersRequest(), pb.ListClustersReply, shown_token)
            return [(each.name, each.life) for each in reply.clusters]

        added = call("AddCluster", pb.AddClusterRequest(document=json.dumps(LAB)), pb.AddClusterReply)
        assert (added.cluster.name, added.cluster.added_by) == ("lab", "ada")
        wait_until(lambda: listed(submitter) == [("onprem", "ready"), ("lab", "ready")], "it is ready")
        call("DrainClusters", pb.DrainClustersRequest(clusters=["lab"]), pb.DrainClustersReply)
        assert listed()[1] == ("lab", "draining")
        call("ResumeClusters", pb.ResumeClustersRequest(clusters=["lab"]), pb.ResumeClustersReply)
        assert listed()[1] == ("lab", "ready")
        wanted = pb.ApplyConfigRequest(dry_run=True)
        outcome = call("ApplyConfig", wanted, pb.ApplyConfigReply)
        assert [(each.what, each.change) for each in outcome.changes] == [("cluster lab", "kept")]
        remove = pb.RemoveClustersRequest(clusters=["lab"], jobs=pb.JOBS_THERE_MOVE)
        call("RemoveClusters", remove, pb.RemoveClustersReply)
        wait_until(lambda: listed() == [("onprem", "ready")], "it is gone")

        def refusal(name: str, request: Any, reply: Any, shown_token: str = token) -> tuple[Any, str]:
            with pytest.raises(grpc.RpcError) as error:
                call(name, request, reply, shown_token)
            return error.value.code(), str(error.value.details())

        code, told = refusal("RemoveClusters", remove, pb.RemoveClustersReply)
        assert (code, told) == (
            grpc.StatusCode.NOT_FOUND,
            "there is no cluster 'lab'; known clusters: onprem",
        )
        code, told = refusal("RemoveClusters", remove, pb.RemoveClustersReply, submitter)
        assert (code, told.endswith("role admin")) == (grpc.StatusCode.PERMISSION_DENIED, True)
        bad = pb.AddClusterRequest(document="[]")
        code, _ = refusal("AddCluster", bad, pb.AddClusterReply)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        bad = pb.AddClusterRequest(document='{"name": "x", "colour": "red"}')
        code, told = refusal("AddCluster", bad, pb.AddClusterReply)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert told.startswith("colour: unknown field; expected one of name")
