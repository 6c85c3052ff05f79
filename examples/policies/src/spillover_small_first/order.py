"""Small jobs first: many people get something soon, and large jobs wait for a quiet hour."""

from spillover.core.jobs import Job


class SmallFirst:
    """Fewer GPUs first, then fewer CPUs; within the same priority, unless told otherwise."""

    def __init__(self, priority: bool = True) -> None:
        self._priority = priority

    def key(self, job: Job) -> tuple[int, int, int]:
        """Sorts before the keys of larger jobs; equal ones stay in the order of submission."""
        asked, tasks = job.kind.shape.resources, job.kind.shape.tasks
        return (-job.priority if self._priority else 0, asked.gpu * tasks, asked.cpu * tasks)
