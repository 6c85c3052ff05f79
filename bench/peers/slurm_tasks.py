"""Runs an array of `true` jobs on Slurm, output in files; with its own daemons on loopback, tuned for short jobs.

`slurm_tasks.py FOLDER COUNT` prints one line of JSON: seconds from the submission until the last job has ended. Needs
the Debian packages slurm-wlm and munge, and root, like Slurm's own daemon.
"""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SLOTS = 64
"""It looks for room a few times a second: with two slots it would run four jobs a second."""
LARGEST_ARRAY = 1_000
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")

CONFIG = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctl}
SlurmdPort={d}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MaxArraySize={largest}
MaxJobCount=100000
MinJobAge=300
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs={slots} State=UNKNOWN
PartitionName=all Nodes=n1 Default=YES MaxTime=INFINITE State=UP
"""


def main() -> None:
    folder, count = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")
    with _daemons(folder):
        _run(4)
        begin = time.monotonic()
        _run(count)
        print(json.dumps({"seconds": time.monotonic() - begin}))


def _run(count: int) -> None:
    """Submit so many jobs, and wait for the last end."""
    while count > 0:
        some = min(count, LARGEST_ARRAY)
        words = ["sbatch", "--quiet", f"--array=0-{some - 1}", "--output=%A_%a.out", "--error=%A_%a.err"]
        subprocess.run([*words, "--wrap", "exec /bin/true"], check=True)
        count -= some
    while subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, check=True).stdout.strip():
        time.sleep(0.2)


@contextlib.contextmanager
def _daemons(folder: Path) -> Iterator[None]:
    """Run Slurm's daemons, and stop them at the end."""
    for name in ("state", "spool", "out"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    config = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    ports = {"ctl": _port(), "d": _port()}
    config.write_text(
        CONFIG.format(folder=folder, host=host, slots=SLOTS, largest=LARGEST_ARRAY + 1, **ports)
    )
    os.environ["SLURM_CONF"] = str(config)
    os.chdir(folder / "out")
    munge = [f"--key-file={key}", f"--socket={folder}/munge.sock", f"--pid-file={folder}/munge.pid"]
    munge += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed", "--foreground", "--force"]
    daemons: list[subprocess.Popen[bytes]] = []
    with (folder / "daemons.log").open("wb") as log:
        try:
            for words in (["munged", *munge], ["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"]):
                daemons.append(subprocess.Popen(words, stdout=log, stderr=log))
                time.sleep(1.0)
            _until_up()
            yield
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
            for daemon in daemons:
                daemon.wait(20)


def _until_up() -> None:
    """Wait until its node accepts jobs."""
    for _ in range(100):
        told = subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True, check=False)
        if told.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    raise SystemExit("Slurm's node does not come up")


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
