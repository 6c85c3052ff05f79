"""Builds jobs for tests in the words of the domain: `a_job().cpus(2).expected(minutes=5)`."""

from typing import Self

from msgspec.structs import replace

from spillover.core.proposals import Dependency, NewJob
from spillover.forms.jobs.likeness import command_of
from spillover.model.ids import JobId
from spillover.model.job import (
    Burst,
    JobSpec,
    On,
    OnTaskFailure,
    OnTaskSuccess,
    Range,
    Retry,
    Shape,
    Shell,
    TaskGroup,
    Terms,
    largest_first,
)
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.model.units import MINUTE, SECOND
from spillover.model.where import Rules, Where


class JobBuilder:
    """Builds a job; every method returns the builder."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._resources = Resources(1000)
        self._needs: tuple[str, ...] = ()
        self._where: Where | None = None
        self._rules: Rules | None = None
        self._runs: tuple[str, ...] = ()
        self._topology: Topology | None = None
        self._reservation = ""
        self._tasks, self._most = 1, 0
        self._groups: tuple[TaskGroup, ...] = ()
        self._burst = Burst.AUTO
        self._terms = Terms()
        self._priority = 0
        self._project = "default"
        self._queue = "default"
        self._deadline: int | None = None
        self._not_before: int | None = None
        self._array: tuple[Range, ...] = ()
        self._after: tuple[Dependency, ...] = ()
        self._key: str | None = None
        self._throttle, self._hold, self._singleton = 0, False, False

    def called(self, name: str) -> Self:
        """Set the name."""
        self._name = name
        return self

    def cpus(self, count: float) -> Self:
        """Set the CPUs of each task."""
        self._resources = replace(self._resources, cpu=int(count * 1000))
        return self

    def memory(self, size: int) -> Self:
        """Set the memory of each task, in bytes."""
        self._resources = replace(self._resources, memory=size)
        return self

    def gpus(self, count: int) -> Self:
        """Set the GPUs of each task."""
        self._resources = replace(self._resources, gpu=count)
        return self

    def others(self, **amounts: int) -> Self:
        """Set the named resources of each task."""
        self._resources = replace(self._resources, other=tuple(sorted(amounts.items())))
        return self

    def needing(self, *words: str) -> Self:
        """Set the words that a machine must offer."""
        self._needs = tuple(sorted(words))
        return self

    def where(self, where: Where) -> Self:
        """Set which clusters are allowed."""
        self._where = where
        return self

    def on_nodes(self, rules: Rules) -> Self:
        """Set which nodes are allowed."""
        self._rules = rules
        return self

    def doing(self, *words: str) -> Self:
        """Set what a cluster must be able to run."""
        self._runs = tuple(sorted(words))
        return self

    def tasks(self, count: int, *, most: int = 0) -> Self:
        """Set the number of tasks; more than one makes a gang. With `most`, it is the least number."""
        self._tasks, self._most = count, most
        return self

    def group(self, name: str, tasks: int = 1, *, pin: str = "", link: str = "") -> Self:
        """Add a group of tasks with the resources that were set last."""
        self._groups = (*self._groups, TaskGroup(name, tasks, self._resources, pin, link))
        return self

    def together(self, topology: Topology) -> Self:
        """Set where tasks must be relative to each other and to other jobs."""
        self._topology = topology
        return self

    def reservation(self, name: str) -> Self:
        """Name the advance reservation that it runs in."""
        self._reservation = name
        return self

    def burst(self, burst: Burst) -> Self:
        """Set whether the job may be rented."""
        self._burst = burst
        return self

    def expected(self, *, minutes: float = 0, seconds: float = 0) -> Self:
        """Set the estimate."""
        return self.terms(estimate=int(minutes * MINUTE + seconds * SECOND))

    def on_task(
        self, *, failure: OnTaskFailure = OnTaskFailure.FAIL, success: OnTaskSuccess = OnTaskSuccess.WAIT
    ) -> Self:
        """Set what the failure of a task, or the success of the first one, means to the gang."""
        self._terms = replace(self._terms, on_task_failure=failure, on_task_success=success)
        return self

    def terms(
        self, *, estimate: int | None = None, walltime: int | None = None, retry: Retry | None = None
    ) -> Self:
        """Set limits and retries; keep those that are not given."""
        old = self._terms
        self._terms = replace(
            old,
            walltime=walltime if walltime is not None else old.walltime,
            estimate=estimate if estimate is not None else old.estimate,
            retry=retry or old.retry,
        )
        return self

    def max_cost(self, millionths: int) -> Self:
        """Set the cost cap of the job."""
        self._terms = replace(self._terms, max_cost=millionths)
        return self

    def data(self, size: int) -> Self:
        """Set the bytes that leave the cluster at the end."""
        self._terms = replace(self._terms, data=size)
        return self

    def priority(self, priority: int) -> Self:
        """Set the priority; higher goes first."""
        self._priority = priority
        return self

    def project(self, project: str) -> Self:
        """Set the project."""
        self._project = project
        return self

    def queue(self, queue: str) -> Self:
        """Set the queue."""
        self._queue = queue
        return self

    def between(self, *, not_before: int | None = None, deadline: int | None = None) -> Self:
        """Set the earliest start and the latest end, in nanoseconds UTC."""
        self._not_before, self._deadline = not_before, deadline
        return self

    def array(self, first: int, last: int) -> Self:
        """Make an array of these indexes."""
        self._array = (Range(first, last),)
        return self

    def at_a_time(self, most: int) -> Self:
        """Place at most so many members of the array at a time."""
        self._throttle = most
        return self

    def held(self) -> Self:
        """Hold it from the start."""
        self._hold = True
        return self

    def singleton(self) -> Self:
        """Let it wait for all earlier jobs of its name."""
        self._singleton = True
        return self

    def after(self, job: str, on: On = On.SUCCESS, *, same: bool = False) -> Self:
        """Add a dependency on another job; with `same`, of each member on that with its index."""
        self._after = (*self._after, Dependency(JobId(job), on, same=same))
        return self

    def key(self, key: str) -> Self:
        """Set an idempotency key."""
        self._key = key
        return self

    def spec(self) -> JobSpec:
        """Return the spec, as if read from a job file."""
        groups = self._groups
        first = min([group.resources for group in groups], key=largest_first, default=self._resources)
        return JobSpec(
            work=Shell("true"),
            name=self._name,
            project=self._project,
            queue=self._queue,
            shape=Shape(
                first,
                self._needs,
                sum(group.tasks for group in groups) or self._tasks,
                self._burst,
                runs=self._runs,
                where=self._where,
                rules=self._rules,
                topology=self._topology,
                groups=groups,
                most=self._most,
                reservation=self._reservation,
            ),
            terms=self._terms,
            priority=self._priority,
            deadline=self._deadline,
            not_before=self._not_before,
            array=self._array,
            hold=self._hold,
            throttle=self._throttle,
            singleton=self._singleton,
        )

    def build(self) -> NewJob:
        """Return the job, with its name as id."""
        spec = self.spec()
        return NewJob(
            JobId(self._name),
            spec,
            b"spec",
            self._after,
            self._key,
            self._name.encode() if self._key is None else b"body",
            command=command_of(spec),
        )


def a_job(name: str = "job") -> JobBuilder:
    """Start building a job of one CPU."""
    return JobBuilder(name)
