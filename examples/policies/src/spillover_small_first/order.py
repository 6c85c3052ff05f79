"""Tries small jobs first. Many people get results soon, and large jobs wait for a quiet hour."""

from spillover.core.records.jobs import Job


class SmallFirst:
    """Fewer GPUs first, then fewer CPUs. Priorities come first, unless `priority` is false."""

    def __init__(self, priority: bool = True) -> None:
        self._priority = priority

    def key(self, job: Job) -> tuple[int, int, int]:
        """Return a key that sorts before the keys of larger jobs. Equal jobs stay in the order of submission."""
        asked, tasks = job.kind.shape.resources, job.kind.shape.tasks
        return (-job.priority if self._priority else 0, asked.gpu * tasks, asked.cpu * tasks)
