"""Secrets of any names, values and variables: a task gets exactly these, and nothing is left of them."""

import asyncio
import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spillover.agent.leases.values import Task
from spillover.agent.tasks.secrets import NoSecrets, TaskSecrets
from spillover.core.events import Lease
from spillover.forms.jobs.reading import read_job, to_doc
from spillover.model.ids import JobId, is_name
from spillover.model.job import Shell
from spillover.model.resources import Resources

LEASE = Lease(JobId("abc"), 1, 7)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(is_name)
values = st.binary(min_size=1, max_size=200)
asked = st.lists(st.tuples(names, values, st.booleans()), max_size=6, unique_by=lambda each: each[0])


class Source:
    """A server with secrets."""

    def __init__(self, values: dict[str, bytes]) -> None:
        self.values = values

    async def ready(self) -> None:
        pass

    async def secrets(self, lease: Lease) -> dict[str, bytes]:
        assert lease == LEASE
        return self.values


@given(asked)
def test_a_task_gets_what_its_job_names_and_leaves_nothing(asked: list[tuple[str, bytes, bool]]) -> None:
    entries = [
        {"name": name, "as": f"V{at}", "file": file} if file else f"{name}=V{at}"
        for at, (name, _, file) in enumerate(asked)
    ]
    document = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", "secrets": entries}}
    spec = read_job(document).spec
    assert read_job(to_doc(spec)).spec == spec
    with tempfile.TemporaryDirectory() as folder:
        memory = Path(folder)
        kept = TaskSecrets(memory / "agent", Source({name: value for name, value, _ in asked}), memory)
        task = Task(Shell("true"), Resources(), secrets=spec.secrets)
        try:
            got = asyncio.run(kept.bring(LEASE, task))
        except NoSecrets:
            assert any(b"\0" in value for _, value, file in asked if not file)
        else:
            assert got.keys() - {"SPILL_SECRETS"} == {f"V{at}" for at in range(len(asked))}
            for at, (_, value, file) in enumerate(asked):
                found = got[f"V{at}"]
                assert (Path(found).read_bytes() if file else os.fsencode(found)) == value
        kept.leave(LEASE)
        assert [path for path in memory.rglob("*") if path.is_file()] == []
