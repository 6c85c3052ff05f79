"""The sentence that answers a what-if question."""

from spillover.control.requests import whatif
from spillover.control.requests.policies import PolicyRequests
from spillover.model.ids import JobId
from spillover.wire.api import AmountsDoc, PolicyPatch, WhatIf
from tests.support.inside import Inside


async def test_a_job_that_would_still_wait_says_how_long_its_new_request_waits(control: Inside) -> None:
    await PolicyRequests(control.loop).change(PolicyPatch("wait=compute(0.25)"), "ada")
    (job,) = await control.submit("train", walltime="1h", resources={"cpu": 2})
    control.clock.pass_by(90)
    found = control.loop.state.jobs[JobId(job)]
    answer = await whatif.answer(control.loop, found, WhatIf(AmountsDoc(cpu=1)), None)
    assert answer.now.spills_in_s == 28.5 * 60
    assert answer.then.spills_in_s == 13.5 * 60
    assert answer.sentence.startswith(f"{job} would still wait: ")
    assert answer.sentence.endswith("; it may spill over in 13m30s")
