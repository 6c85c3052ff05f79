"""First in, first out."""

from spillover.core.jobs import Job


class Fifo:
    """Jobs in the order of their submission."""

    def key(self, job: Job) -> tuple[()]:
        """Nothing comes before the order of submission."""
        del job
        return ()
