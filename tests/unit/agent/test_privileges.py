"""An agent that root starts runs as another user: tasks reach neither its token nor the metadata service."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.agent.__main__ import main
from spillover.agent.privileges import KEPT, Kept, read_kept

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs an agent as another user")
AGENT = """
import asyncio, json, os, sys
from pathlib import Path
from spillover.agent import privileges

privileges.close_metadata = lambda uid: []
data = Path(sys.argv[1])

class Notices:
    asked = 0
    def ask(self):
        self.asked += 1
        return 77 if self.asked == 3 else None

helper = privileges.give_up_root("nobody", data, "m1", Notices(), lambda: (data / "off").touch(), 0.01)
told = {"uid": os.getuid(), "groups": os.getgroups(), "home": os.environ["HOME"]}
told["notice"] = asyncio.run(helper.notice())
helper.keep("spt_a_b", b"authority")
helper.turn_off()
helper.close()
(data / "agents" / "m1" / "mine").touch()
for name, call in {
    "root again": lambda: os.setuid(0),
    "token": lambda: (data / privileges.KEPT).read_bytes(),
    "other": lambda: (data / "mine").touch(),
}.items():
    try:
        call()
        told[name] = "possible"
    except OSError:
        told[name] = "refused"
print(json.dumps(told))
"""


@only_root
def test_what_needs_root_stays_in_a_helper_that_tasks_cannot_touch() -> None:
    # Below /tmp, because the folders of pytest are closed to other users.
    data = Path(f"/tmp/spillover-test-{os.getpid()}")
    data.mkdir(mode=0o700)
    try:
        (data / "agents" / "m1" / "spool").mkdir(parents=True)
        done = subprocess.run(
            [sys.executable, "-c", AGENT, str(data)], capture_output=True, text=True, check=False, timeout=30
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told.pop("uid") == 65534
        assert 0 not in told.pop("groups")
        assert told.pop("home") != os.environ.get("HOME")
        assert told == {"notice": 77, "root again": "refused", "token": "refused", "other": "refused"}
        assert read_kept(data, "m1") == Kept("m1", "spt_a_b", "authority")
        assert read_kept(data, "m2") is None, "of another machine"
        assert (data / KEPT).stat().st_mode & 0o777 == 0o600
        assert (data / KEPT).stat().st_uid == 0
        assert (data / "off").exists()
        assert (data / "agents" / "m1" / "spool").stat().st_uid == 65534
    finally:
        shutil.rmtree(data)


MACHINE = """
set -e
ip link set lo up
ip addr add 169.254.169.254/32 dev lo
"$1" -c 'from spillover.agent.privileges import close_metadata; print(close_metadata(65534)[:1], close_metadata(65534)[:1])'
"$1" -m http.server --bind 169.254.169.254 80 >/dev/null 2>&1 &
trap "kill $!" EXIT
for i in $(seq 200); do (: </dev/tcp/169.254.169.254/80) 2>/dev/null && break; sleep 0.05; done
see() { (timeout 2 $1 bash -c ': </dev/tcp/169.254.169.254/80') 2>/dev/null && echo "$2 reaches it" || echo "$2 does not"; }
see "" root
see "setpriv --reuid 65534 --clear-groups" nobody
see "setpriv --reuid 65533 --clear-groups" other
iptables -S OUTPUT | grep -c REJECT
"""


def _has_namespaces() -> bool:
    tools = all(shutil.which(each) for each in ("unshare", "iptables", "ip", "setpriv"))
    if not tools or os.geteuid() != 0:
        return False
    return (
        subprocess.run(["unshare", "-n", "iptables", "-S"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not _has_namespaces(), reason="needs root, network namespaces and iptables")
def test_the_kernel_refuses_what_tasks_send_to_the_metadata_service() -> None:
    command = ["unshare", "-n", "bash", "-c", MACHINE, "bash", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    first, *told, rules = done.stdout.splitlines()
    assert told == ["root reaches it", "nobody does not", "other reaches it"]
    assert rules == "1", f"set twice is one rule: {first}"


def test_a_user_that_an_agent_cannot_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for user, problem in (("no-such-user", "there is no such user"), ("root", "tasks would run as root")):
        with pytest.raises(SystemExit) as end:
            main(["--data", str(tmp_path), "--name", "n1", "--cluster", "lab", "--user", user])
        assert end.value.code == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert (problem if os.geteuid() == 0 else "only root can run an agent as another user") in said
