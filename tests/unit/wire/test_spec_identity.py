"""What makes two submissions under one key the same job, also across releases."""

import hashlib

import msgspec
import pytest

from spillover.testing.builders import JobBuilder, a_job
from spillover.wire.journal import encode_spec, spec_identity


def of_release_0_4(job: JobBuilder) -> bytes:
    """The digest that release 0.4 computed for a job that says nothing newer."""
    spec = msgspec.msgpack.decode(encode_spec(job.spec())[1])
    spec["shape"], spec["terms"] = spec["shape"][:8], spec["terms"][:8]
    for name in (
        *("groups", "hold", "throttle", "singleton", "stdout", "stderr", "append"),
        *("signal", "signal_before", "stdin", "keep_state", "terminal", "environment", "taken"),
        *("secrets", "notify"),
    ):
        del spec[name]
    return hashlib.blake2b(msgspec.msgpack.encode(spec), digest_size=16).digest()


@pytest.mark.parametrize("job", [a_job("plain"), a_job("gang").tasks(4).gpus(1).needing("ssd")])
def test_a_job_that_says_nothing_new_is_the_same_as_before_an_upgrade(job: JobBuilder) -> None:
    assert spec_identity(encode_spec(job.spec())[1]) == of_release_0_4(job)


def test_what_is_new_makes_another_job() -> None:
    jobs = [
        a_job(),
        a_job().tasks(1, most=3),
        a_job().tasks(2),
        a_job().cpus(1).group("a").group("b"),
        a_job().cpus(1).group("b").group("a"),
        a_job().held(),
        a_job().singleton(),
        a_job().array(1, 3),
        a_job().array(1, 3).at_a_time(2),
    ]
    assert len({spec_identity(encode_spec(job.spec())[1]) for job in jobs}) == len(jobs)
