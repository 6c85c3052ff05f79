"""Wait in proportion to the work: what costs more to rent may wait longer."""

from fractions import Fraction

from spillover.model.job import Shape


class Compute:
    """A coefficient times GPUs times runtime, or times CPUs for a job without GPUs."""

    def __init__(self, coefficient: float) -> None:
        self._coefficient = Fraction(str(coefficient))
        """Nanoseconds of waiting for each nanosecond of one GPU or CPU; exact, so that plans do not depend on rounding."""

    def wait(self, shape: Shape, expected: int) -> int:
        """By all tasks of the job together."""
        asked = shape.resources
        thousandths = asked.gpu * 1000 if asked.gpu else asked.cpu
        return int(self._coefficient * (thousandths * shape.tasks * expected) / 1000)
