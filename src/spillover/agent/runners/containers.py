"""Runs containers with docker or podman, whichever is installed.

The engine's own client is the process of the task. The nursery starts it. Its output is that of the container, it
passes TERM on, and it ends with the container's exit code. For the rest the runner asks the engine: to kill a
container, whether memory ran out, and to remove what is left.
"""

import asyncio
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from spillover.agent.files.cache import Unfetched
from spillover.agent.files.output import last_line
from spillover.agent.files.state_folders import STATE
from spillover.agent.leases.slurm import slurm_environment
from spillover.agent.leases.values import CallInImage, Exit, Task
from spillover.agent.nursery.clock import boottime
from spillover.agent.nursery.start_times import set_times
from spillover.agent.runners.contained import TELL_TERM
from spillover.agent.runners.container_calls import ContainerCalls
from spillover.agent.runners.manifests import ContainerPlan, UnrunnableManifest, plan_of
from spillover.agent.runners.port import RunnerContext, RunnerOffer
from spillover.agent.tasks.process import ProcessEnded, Seen, Spawned, stem_of
from spillover.agent.tasks.topology import memory_nodes
from spillover.core.events import Lease
from spillover.model.admission import CONTAINER_CALLS
from spillover.model.containers import ENGINE_ENV, steers
from spillover.model.inside import cpu_list
from spillover.model.job import Argv, Container
from spillover.model.secrets import SECRETS_FOLDER

ENGINES: Final = ("podman", "docker")
LABEL: Final = "dev.spillover.agent"
"""Label of every container of an agent. Its value identifies the agent, so that the next run finds leftovers."""
ENGINE_FAILED: Final = 125
"""Exit code of an engine that could not create the container."""
ENGINE_REFUSED: Final = 126
"""Exit code of an engine that could not start the container. A program may also exit with it."""
NEVER: Final = "0001-"
"""Prefix of the start time of a container that never started."""
KILLED: Final = 128 + 9
"""Exit code of a container that was killed."""
MOVES: Final = 10
"""Tries to move containers to other CPUs, a second apart."""
PATIENCE: Final = 30.0
"""Seconds that a request to the engine may take."""
LONGEST_PULL: Final = 3600.0
"""Seconds that the engine may take to pull an image."""
LEAST_MEMORY: Final = 6 << 20
"""Bytes. Engines refuse a lower memory limit."""


class Containers:
    """The runner of containers."""

    kinds = (Container, CallInImage)

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        named = context.settings.get("engine")
        found = [path for name in ([named] if named else ENGINES) if (path := shutil.which(name))]
        self._engine = found[0] if found else ""
        self._is_docker = Path(self._engine).name == "docker"
        self._options = tuple(filter(None, context.settings.get("engine_options", "").split("\0")))
        self._why = "" if found else "PATH has neither podman nor docker"
        self._mark = f"{LABEL}={hashlib.sha256(str(context.folder).encode()).hexdigest()[:16]}"
        self._env = {name: value for name, value in os.environ.items() if name.startswith(ENGINE_ENV)}
        self._calls = ContainerCalls(context.folder / "container-calls", context.files)
        self._called: dict[Lease, CallInImage] = {}
        """Those of the containers that make Python calls."""
        self._names: dict[Lease, str] = {}
        self._killed: set[Lease] = set()
        """Containers that were asked to end."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._shared = ""
        """The CPUs that no task has for itself; empty if none has any."""
        self._limits_cpus: bool | None = None
        """Whether the engine can keep containers on some CPUs; None until the first container."""
        self._loose: dict[Lease, str] = {}
        """The CPUs that containers without CPUs of their own were last given."""
        self._pulls: dict[str, asyncio.Task[str]] = {}
        """Images that are being pulled."""

    def offer(self) -> RunnerOffer:
        """Offer containers, and calls in them, if an engine answers."""
        words = ("container", CONTAINER_CALLS)
        return RunnerOffer(missing=dict.fromkeys(words, self._why)) if self._why else RunnerOffer(words)

    async def open(self) -> None:
        """Check whether the engine works, and remove what an earlier run left."""
        if self._engine:
            self._why = await self._sweep()
        await asyncio.to_thread(self._calls.open)

    async def close(self) -> None:
        """Remove what is left."""
        work = [*self._tasks, *self._pulls.values()]
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        if self._names:
            await self._sweep()

    def start(self, lease: Lease, task: Task, slot: int) -> None:  # noqa: ARG002 - containers share no slot
        """Run a container."""
        name = f"spill-{lease.job}-{lease.attempt}-{lease.task}-{lease.seq}"
        if isinstance(task.work, CallInImage):
            self._names[lease], self._called[lease] = name, task.work
            self._in_background(self._start_call(lease, task, task.work, name))
            return
        if not isinstance(task.work, Container):
            raise TypeError(task.work)
        try:
            plan = plan_of(task.work)
        except UnrunnableManifest as error:
            self._tell_soon(lease, Exit(boottime(), spawned=False, message=str(error)))
            return
        self._names[lease] = name
        self._run(lease, task, plan, name)

    async def _start_call(self, lease: Lease, task: Task, work: CallInImage, name: str) -> None:
        """Run a container that makes a Python call."""
        why = ""
        try:
            plan = await self._calls.pack(name, lease.job, work)
        except UnrunnableManifest as error:
            why = str(error)
        except Unfetched as error:
            why = f"cannot fetch the function: {error}"
        except OSError as error:
            why = f"the agent cannot store its call: {error.strerror or error}"
        if not why and lease not in self._killed:
            self._run(lease, task, plan, name)
            return
        del self._names[lease], self._called[lease]
        self._killed.discard(lease)
        await self._calls.drop(name)
        self._tell_soon(lease, Exit(boottime(), spawned=False, message=why or "stopped before it started"))

    def _run(self, lease: Lease, task: Task, plan: ContainerPlan, name: str) -> None:
        """Start the client that runs a container."""
        own = task.cpus
        if self._limits_cpus is None:
            self._limits_cpus = False
            self._in_background(self._learn_limits())
        if not own:
            self._loose[lease] = self._shared if self._limits_cpus else ""
            task = replace(task, cpus=self._loose[lease])
        env = self._variables(lease, task)
        words = self._words(name, env, task, plan)
        workdir = task.workdir if plan.own_folder else "/"
        # The engine limits the container, so its client runs without a memory limit.
        handed = {variable: value for variable, value in env.items() if not steers(variable)}
        client = Task(
            Argv(words),
            replace(task.need, memory=0),
            handed | self._env,
            workdir,
            cpus=own,
            given=task.given,
            secrets=task.secrets,
        )
        self._context.launch(lease, client, lambda seen: self._heard(lease, seen, task.need.memory))

    async def prepare(self, task: Task) -> str:
        """Pull the image of a task of a gang if it is missing; return why that fails, or an empty string.

        Calls in containers are no gangs. The pull goes on if the task is given back: the gang may come again.
        """
        if not isinstance(task.work, Container):
            raise TypeError(task.work)
        try:
            image = plan_of(task.work).image
        except UnrunnableManifest as error:
            return str(error)
        pull = self._pulls.get(image)
        if pull is None:
            pull = self._pulls[image] = asyncio.create_task(self._pull(image))
            pull.add_done_callback(lambda _: self._pulls.pop(image))
        return await asyncio.shield(pull)

    async def _pull(self, image: str) -> str:
        """Pull an image, with the options that containers get; return why that fails, or an empty string."""
        known = not any(option.startswith("--pull") for option in self._options)
        if known and (await self._ask("image", "inspect", "--format", "{{.Id}}", image))[0] == 0:
            return ""
        # A container that is never started: unlike `pull`, `create` takes all options, and so finds the same image.
        name = f"spill-pull-{secrets.token_hex(8)}"
        words = ("create", "--name", name, "--label", self._mark, *self._options, image, "true")
        client = await asyncio.create_subprocess_exec(
            self._engine,
            *words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(LONGEST_PULL):
                said, _ = await client.communicate()
        except TimeoutError:
            said = f"it took longer than {LONGEST_PULL:.0f} s".encode()
        finally:
            if client.returncode is None:
                client.kill()
                await client.wait()
        await self._ask("rm", "--force", "--volumes", name)
        if client.returncode == 0:
            return ""
        last = _last(said.decode(errors="replace"))
        return f"{Path(self._engine).name} cannot pull {image}: {last}"

    def recall(self, lease: Lease) -> None:
        """Do nothing, because containers are never queued behind others."""

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Stop a container. The client passes TERM on, but KILL needs the engine."""
        name = self._names.get(lease)
        if name is None:
            return
        self._killed.add(lease)
        if kill:
            self._in_background(self._kill(lease, name))
        else:
            self._context.signal(lease, False)

    def notify(self, lease: Lease, number: int) -> None:
        """Send a signal to the first process of a container. The kernel drops it if that process does not handle it."""
        if (name := self._names.get(lease)) is not None:
            # The first process of a call passes TERM on, to end it.
            meant = TELL_TERM if lease in self._called and number == signal.SIGTERM else number
            self._in_background(self._send(meant, name))

    async def _send(self, number: int, name: str) -> None:
        await self._ask("kill", "--signal", str(number), name)

    async def name_output(self, lease: Lease) -> None:
        """Name the output like that of any process."""
        await self._context.name_output(lease)

    def share(self, cpus: str) -> None:
        """Keep containers without CPUs of their own on these CPUs."""
        self._shared = cpus
        if self._loose and self._limits_cpus:
            self._in_background(self._move())

    async def _learn_limits(self) -> None:
        """Learn whether the engine can keep containers on some CPUs. It looks at the whole system, which takes a while."""
        able = "{{.CPUSet}}" if self._is_docker else "{{.Host.CgroupControllers}}"
        code, said = await self._ask("info", "--format", able)
        self._limits_cpus = code == 0 and ("true" in said if self._is_docker else "cpuset" in said)
        if self._limits_cpus:
            await self._move()

    async def _move(self) -> None:
        """Tell the engine which CPUs containers share; try again for some seconds if one is not created yet."""
        for _ in range(MOVES):
            behind = [lease for lease, cpus in self._loose.items() if cpus != self._shared]
            if not behind:
                return
            for lease in behind:
                cpus, name = self._shared, self._names.get(lease, "")
                everything = cpus or cpu_list(sum([1 << cpu for cpu in os.sched_getaffinity(0)]))
                code, _ = await self._ask("update", "--cpuset-cpus", everything, name)
                if code == 0 and lease in self._loose:
                    self._loose[lease] = cpus
            await asyncio.sleep(1.0)

    # --- the command line

    def _variables(self, lease: Lease, task: Task) -> dict[str, str]:
        """Return the environment of the container."""
        env = slurm_environment(lease, task, self._context.node) | task.env
        set_times(env, time.time())
        env |= {"SPILL_JOB_ID": lease.job, "SPILL_ATTEMPT": str(lease.attempt)}
        env |= {"SPILL_CLUSTER": self._context.cluster}
        array, dot, index = lease.job.rpartition(".")
        if dot and array and index.isdigit():
            env["SPILL_ARRAY_INDEX"] = index
        return env

    def _words(self, name: str, env: dict[str, str], task: Task, plan: ContainerPlan) -> tuple[str, ...]:
        """Return the command line of the client."""
        words = [self._engine, "run", "--name", name, "--label", self._mark, *self._options]
        # All users can see command lines. So values go through the client's own environment where possible.
        for variable, value in env.items():
            words += ["--env", f"{variable}={value}" if steers(variable) else variable]
        if task.given:
            words.append("--interactive")
        if task.need.memory:
            memory = str(max(LEAST_MEMORY, task.need.memory))
            words += ["--memory", memory, "--memory-swap", memory]
        if task.need.cpu:
            words += ["--cpu-shares", str(max(2, task.need.cpu * 1024 // 1000))]
        if task.cpus:
            words += ["--cpuset-cpus", task.cpus]
        if task.binds_memory and (nodes := memory_nodes(task.cpus)):
            words += ["--cpuset-mems", nodes]
        if task.need.gpu:
            words += self._gpus(task)
        for volume in (*_folders(task), *plan.volumes):
            words += ["--volume", volume]
        if plan.own_folder:
            words += ["--volume", f"{task.workdir}:{task.workdir}", "--workdir", task.workdir]
        elif plan.workdir is not None:
            words += ["--workdir", plan.workdir]
        if plan.entrypoint is not None:
            words += ["--entrypoint", plan.entrypoint]
        return (*words, plan.image, *plan.words)

    def _gpus(self, task: Task) -> list[str]:
        """Return options for the assigned GPUs, or for as many as were requested."""
        given = [each for each in task.env.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        if self._is_docker:
            return ["--gpus", f'"device={",".join(given)}"' if given else str(task.need.gpu)]
        devices = given or [str(number) for number in range(task.need.gpu)]
        return [word for each in devices for word in ("--device", f"nvidia.com/gpu={each}")]

    # --- the end

    def _heard(self, lease: Lease, seen: Seen, memory: int) -> None:
        """Handle the start or end of the client."""
        if isinstance(seen, Spawned):
            self._context.seen([seen])
        else:
            self._in_background(self._finish(lease, seen.end, memory))

    async def _finish(self, lease: Lease, end: Exit, memory: int) -> None:
        """Ask how the container ended, remove it, and report the end."""
        name = self._names.pop(lease, None)
        self._loose.pop(lease, None)
        if name is None:
            return
        starved = False
        if end.spawned:
            form = "{{.State.OOMKilled}} {{.State.StartedAt}}"
            code, said = await self._ask("container", "inspect", "--format", form, name)
            # Not every engine reports a kill for lack of memory. With a memory limit, a kill that is not ours means the
            # same.
            killed = end.code == KILLED and memory > 0 and lease not in self._killed
            starved = (code == 0 and said.startswith("true")) or killed
            refused = code == 0 and said.partition(" ")[2].startswith(NEVER) and end.code == ENGINE_REFUSED
            if refused or (code != 0 and end.code == ENGINE_FAILED):
                end = Exit(end.ended, spawned=False, message=self._last_words(lease))
        await self._ask("rm", "--force", "--volumes", name)
        end = replace(end, out_of_memory=end.out_of_memory or starved)
        if (work := self._called.pop(lease, None)) is not None:
            stopped, said = lease in self._killed, self._last_words(lease)
            end = await self._calls.outcome(name, work, end, stopped=stopped, said=said)
            await self._calls.drop(name)
        self._killed.discard(lease)
        self._context.seen([ProcessEnded(lease, end)])

    def _last_words(self, lease: Lease) -> str:
        """Return the engine's error message when it could not run the container."""
        stem = stem_of(self._context.folder / "output", lease.job, lease.attempt, lease.task)
        last = last_line(Path(f"{stem}.err"))
        return f"{Path(self._engine).name} could not run it: {last or 'it gave no reason'}"

    async def _kill(self, lease: Lease, name: str) -> None:
        """Kill a container, or at least its client if the engine does not."""
        await self._ask("kill", "--signal", "KILL", name)
        if lease in self._names:
            await asyncio.sleep(1.0)
        if lease in self._names:
            self._context.signal(lease, True)

    async def _sweep(self) -> str:
        """Remove containers of this agent that have no client; return the problem, or an empty string."""
        code, said = await self._ask("ps", "--all", "--quiet", "--filter", f"label={self._mark}")
        if code != 0:
            return f"{self._engine} does not work: {_last(said)}"
        if said.split():
            await self._ask("rm", "--force", "--volumes", *said.split())
        return ""

    async def _ask(self, *words: str) -> tuple[int, str]:
        """Run a command of the engine; return its exit code and output."""

        def run() -> tuple[int, str]:
            try:
                done = subprocess.run(
                    [self._engine, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=PATIENCE,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return -1, str(error)
            return done.returncode, done.stdout.decode(errors="replace")

        return await asyncio.to_thread(run)

    def _tell_soon(self, lease: Lease, end: Exit) -> None:
        asyncio.get_running_loop().call_soon(lambda: self._context.seen([ProcessEnded(lease, end)]))

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _folders(task: Task) -> list[str]:
    """Return the volumes with the folders that a task has on its agent."""
    state = [f"{task.env[STATE]}:{task.env[STATE]}"] if task.keep_state else []
    secret = task.env.get(SECRETS_FOLDER) if task.secrets else None
    return state if secret is None else [*state, f"{secret}:{secret}:ro"]


def _last(said: str) -> str:
    """Return the last line that the engine printed."""
    return said.strip().rpartition("\n")[2] or "it gave no reason"
