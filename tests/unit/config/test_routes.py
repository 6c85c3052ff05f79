"""Routes and prefetched work in spill.yaml, and routes in a line."""

import pytest

from spillover.config.read import read_config
from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import write_policies
from spillover.model.units import SECOND

HEAD = "apiVersion: spillover/v1\nkind: Config\n"


def test_the_route_and_the_horizon_are_read() -> None:
    text = HEAD + "policy: {route: {biased: {share: 0.5}}}\nagents: {ahead: 2s}\n"
    config = read_config(text.encode(), "spill.yaml")
    assert config.policies.route == Choice("biased", {"share": 0.5})
    assert config.ahead == 2 * SECOND
    plain = read_config(HEAD.encode(), "spill.yaml")
    assert (plain.policies.route, plain.ahead) == (Choice("least_loaded"), SECOND // 10)
    off = read_config((HEAD + "agents: {ahead: 0s}\n").encode(), "spill.yaml")
    assert off.ahead == 0
    assert plain.stealing
    assert not read_config((HEAD + "agents: {stealing: false}\n").encode(), "spill.yaml").stealing


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy: {route: random}", "is not a policy of the axis route"),
        ("policy: {route: {biased: {part: 1}}}", "unknown option"),
        ("policy: {route: {biased: {share: 2}}}", "share is 2"),
        ("agents: {ahead: 2h}", "agents.ahead"),
        ("agents: {ahead: soon}", "agents.ahead"),
    ],
)
def test_what_is_wrong_with_them_is_one_line(text: str, said: str) -> None:
    with pytest.raises(BadForm) as error:
        read_config((HEAD + text + "\n").encode(), "spill.yaml")
    (line,) = str(error.value).splitlines()
    assert said in line


@pytest.mark.parametrize("route", ["biased", "biased(0.5)", "round_robin", "power_of_two"])
def test_a_line_names_a_route_and_reads_the_same_again(route: str) -> None:
    policies = read_policies(f"route={route}")
    assert f"route={route}" in write_policies(policies)
    assert read_policies(write_policies(policies)) == policies


def test_a_line_does_not_mention_the_route_that_needs_no_mention() -> None:
    assert "route" not in write_policies(PolicySet())
    assert read_policies(write_policies(PolicySet())) == PolicySet()
