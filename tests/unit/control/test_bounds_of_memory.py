"""What a server remembers beside its book is bounded, by bytes where things differ in size."""

from spillover.control.agents.registrations import AGENTS, Registrations
from spillover.control.live.specs import EACH, Specs
from spillover.control.requests.tokens import Tokens
from spillover.model.job import JobSpec
from spillover.wire.api import TokenRequest
from spillover.wire.journal import encode_spec
from tests.support.inside import Inside, form


def spec(size: int, number: int = 0) -> tuple[bytes, JobSpec, int]:
    """A spec with a long command: its digest, itself, and its bytes."""
    made = form(f"job{number}", run="x" * size).spec
    digest, body = encode_spec(made)
    return digest, made, len(body)


async def test_specs_are_kept_up_to_so_many_bytes(control: Inside) -> None:
    specs = Specs(control.store.journal, most=1 << 20)
    for number in range(100):
        specs.keep(*spec(100_000, number))
    assert 900_000 < specs.held <= 1 << 20
    digest, large, _ = spec(10)
    specs.keep(digest, large, 2 << 20)
    assert specs.held == 0
    for number in range(1_000):
        specs.keep(*spec(10, number))
        specs.keep(*spec(10, number))
    assert (1 << 20) - 2 * EACH < specs.held <= 1 << 20


async def test_a_spec_that_was_dropped_is_read_again(control: Inside) -> None:
    specs = Specs(control.store.journal, most=3 * EACH)
    jobs = await control.submit(*[f"job{number}" for number in range(20)])
    digests = [control.loop.state.jobs[job].spec for job in control.loop.state.jobs]
    assert len(jobs) == 20
    for _ in range(2):
        assert len(await specs.get(digests)) == len(set(digests))
        assert specs.held <= 3 * EACH


def test_agents_that_come_and_go_under_new_names_are_forgotten() -> None:
    lives = Registrations()
    for number in range(AGENTS + 10):
        lives.check(f"cloud/{number}", "life", 1, present=None)
        lives.check("cloud/same", "life", number + 1, present=None)
    assert len(lives._last) == AGENTS
    assert "cloud/same" in lives._last


async def test_when_a_token_was_shown_is_remembered_as_long_as_it_is_known(control: Inside) -> None:
    tokens = Tokens("secret", control.loop)
    for _ in range(20):
        made = await tokens.create(TokenRequest(role="submit"), "ada")
        tokens.caller(made.token)
        control.loop.state.tokens = {made.id: control.loop.state.tokens[made.id]}  # the others were forgotten
    assert made.id in tokens._used
    assert len(tokens._used) <= 3
