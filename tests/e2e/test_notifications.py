"""A real server tells a real HTTP receiver and a real SMTP server what happens, also if it is killed in between."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from spillover.wire.notices import Notice, decode_notice
from tests.support.processes import ServerProcess, wait_until
from tests.support.receivers import HttpReceiver, http_receiver, smtp_receiver
from tests.support.waiting import until

FAST = {"heartbeat": "200ms"}
LOCAL = [{"name": "onprem", "kind": "agents", "local": [{"name": "n1", "cpu": 4, "memory": "1Gi"}]}]


def notices(receiver: HttpReceiver) -> list[Notice]:
    return [decode_notice(body) for _, body in receiver.got]


def settings(folder: Path, url: str, port: int, *rules: dict[str, Any]) -> dict[str, Any]:
    (folder / "secret").write_text("0123456789abcdef0123456789abcdef\n")
    hook = {"name": "chat", "url": url, "secret_file": str(folder / "secret"), "projects": "all"}
    mail = {"server": "127.0.0.1", "port": port, "security": "none", "from": "spill@example.org"}
    return {"webhooks": [hook], "mail": mail, "rules": list(rules)}


async def spill(server: ServerProcess, *arguments: str, code: int = 0) -> str:
    done = await asyncio.to_thread(server.spill, *arguments, timeout=60)
    assert done.returncode == code, done
    return done.stdout.strip() + done.stderr.strip() if code else done.stdout.strip()


async def mailed(got: list[Any], count: int) -> None:
    await until(lambda: len(got) >= count, f"mail {count}")


async def test_messages_arrive_after_the_server_was_killed_before_they_were_written_and_before_they_were_sent(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    async with http_receiver() as receiver, smtp_receiver() as post:
        told = settings(tmp_path, receiver.url, post.port)
        server = servers(clusters=LOCAL, agents=FAST, notifications=told)
        await asyncio.to_thread(server.up)
        receiver.status = 503
        await spill(server, "run", "--wait", "--notify", "end:chat", "--name", "first", "--", "true")
        await asyncio.to_thread(server.kill)
        assert receiver.got == [], "it had a moment to collect messages"
        await asyncio.to_thread(server.up)
        await receiver.until(1)
        with server.client() as client:
            (waiting,) = await asyncio.to_thread(
                wait_until,
                lambda: [each for each in client.notifications() if each.error],
                "the failed try to be noted",
            )
        assert (waiting.state, waiting.error) == ("waiting", "answered with status 503")
        await asyncio.to_thread(server.kill)
        tries = len(receiver.got)
        receiver.status = 204
        await asyncio.to_thread(server.up)
        await receiver.until(tries + 1)
        with server.client() as client:
            await asyncio.to_thread(
                wait_until, lambda: not list(client.notifications()), "the message to be removed"
            )
        found = notices(receiver)
        assert len({each.id for each in found}) == 1, "a receiver can tell that it is the same message"
        assert found[-1].job is not None
        assert (found[-1].kind, found[-1].job.name, found[-1].job.state) == ("end", "first", "SUCCEEDED")


async def test_an_array_is_one_mail_and_settings_change_while_the_server_runs(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    async with http_receiver() as receiver, smtp_receiver() as post:
        told = settings(tmp_path, receiver.url, post.port)
        server = servers(clusters=LOCAL, agents=FAST, notifications=told)
        await asyncio.to_thread(server.up)
        script = tmp_path / "sweep.sbatch"
        lines = "#SBATCH --array=1-40 --mail-type=END --mail-user=ada@example.org\n"
        script.write_text(f'#!/bin/sh\n{lines}test "$SLURM_ARRAY_TASK_ID" != 7\n')
        await spill(server, "submit", "--wait", "sweep.sbatch", code=1)
        await mailed(post.got, 1)
        (mail,) = post.got
        assert mail["Subject"] == "[spill] sweep.sbatch FAILED: 1 of its members did not succeed"
        assert "Members    1 FAILED, 39 SUCCEEDED" in mail.get_content()
        # another configuration
        path = tmp_path / "spill.yaml"
        config = yaml.safe_load(path.read_text())
        rule = {"to": ["chat"], "on": ["fail", "budget", "agent_lost"]}
        config["notifications"]["rules"] = [rule]
        path.write_text(yaml.safe_dump(config))
        assert "who is told of what" in await spill(server, "config", "apply")
        notify = ("--notify", "begin:chat")
        await spill(server, "run", "--wait", *notify, "--name", "bad", "--", "false", code=1)
        await receiver.until(2)
        begun, bad = notices(receiver)
        assert (begun.kind, begun.job and begun.job.name) == ("begin", "bad"), "although it ended at once"
        assert (bad.kind, bad.job and bad.job.name) == ("fail", "bad")
        # a message that cannot be sent, and what people do about it
        post.answer = lambda _: "550 no such mailbox"
        await spill(server, "notifications", "test", "nobody@example.org")
        with server.client() as client:
            await asyncio.to_thread(
                wait_until, lambda: list(client.notifications(failed=True)), "the message to fail"
            )
        listed = await spill(server, "notifications", "--failed")
        assert "nobody@example.org" in listed
        assert "550 no such mailbox" in listed
        post.answer = lambda _: None
        await spill(server, "notifications", "retry", "--failed")
        await mailed(post.got, 2)
        assert post.got[1]["Subject"].endswith("tries whether notifications arrive; they do")
        assert len(post.got) == 2
        # jobs name only what they may
        refused = await spill(server, "run", "--notify", "end:https://eve.example.org", "--", "true", code=2)
        assert "neither a mail address nor the name of a webhook" in refused
        unknown = await spill(server, "run", "--notify", "end:pager", "--", "true", code=2)
        assert (
            "there is no webhook 'pager' that jobs of project default may name; they may name: chat"
            in unknown
        )
        (tmp_path / "secret").unlink()
        config["notifications"]["rules"] = []
        path.write_text(yaml.safe_dump(config))
        wrong = await spill(server, "config", "apply", code=2)
        assert f"notifications.webhooks[0]: cannot read {tmp_path}/secret: No such file or directory" in wrong
