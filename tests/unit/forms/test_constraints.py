"""Constraints on nodes, in the form of Flux, as rules for nodes."""

import re
from typing import Any

import pytest

from spillover.forms.jobs.reading import BadForm, read_job, to_doc
from spillover.model.admission import matches
from spillover.model.where import NODE_NAME, PROPERTY, Rules

NODES = {
    "n1": ({"rack": "r1"}, {"ssd"}),
    "n2": ({"rack": "r1"}, {"ssd", "gpu:a100"}),
    "n03": ({}, {"gpu:a100"}),
    "login": ({"old": ""}, set[str]()),
}


def a_form(constraints: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "x", "constraints": constraints}}


def nodes_for(constraints: dict[str, Any]) -> list[str]:
    """The nodes on which a job with these constraints may run."""
    form = read_job(a_form(constraints))
    assert read_job(to_doc(form)) == form, "it is written as it was read"
    rules = form.spec.shape.rules or Rules()
    return [name for name, (labels, offers) in NODES.items() if matches(rules, name, labels, offers)]


@pytest.mark.parametrize(
    ("constraints", "nodes"),
    [
        ({}, ["n1", "n2", "n03", "login"]),
        ({"properties": ["ssd"]}, ["n1", "n2"]),
        ({"properties": ["ssd", "gpu:a100"]}, ["n2"]),
        ({"properties": ["ssd", "^gpu:a100"]}, ["n1"]),
        ({"properties": ["old"]}, ["login"]),
        ({"hostlist": ["n[1-2],login"]}, ["n1", "n2", "login"]),
        ({"hostlist": ["n[01-03]"]}, ["n03"]),
        ({"not": [{"hostlist": ["n1", "n2"]}]}, ["n03", "login"]),
        ({"or": [{"properties": ["old"]}, {"hostlist": ["n1"]}]}, ["n1", "login"]),
        (
            {"and": [{"properties": ["rack"]}, {"or": [{"hostlist": ["n2"]}, {"properties": ["^ssd"]}]}]},
            ["n2"],
        ),
        ({"not": [{"properties": ["ssd", "gpu:a100"]}]}, ["n1", "n03", "login"]),
        ({"not": [{"or": [{"properties": ["ssd"]}, {"properties": ["old"]}]}]}, ["n03"]),
        ({"not": [{"properties": ["ssd"]}, {"properties": ["gpu:a100"]}]}, ["n1", "n03", "login"]),
        ({"not": [{"not": [{"properties": ["old"]}]}]}, ["login"]),
    ],
)
def test_constraints_select_nodes(constraints: dict[str, Any], nodes: list[str]) -> None:
    assert nodes_for(constraints) == nodes


@pytest.mark.parametrize(
    ("constraints", "problem"),
    [
        (
            {"ranks": ["0-3"]},
            "constraints.ranks: is not supported; write one of properties, hostlist, and, or, not",
        ),
        ({"properties": []}, "constraints.properties: must be a list with at least one entry"),
        ({"properties": ["a b"]}, "constraints.properties[0]: 'a b' is not a property; write 1 to 100"),
        ({"properties": ["^^a"]}, "constraints.properties[0]: '^^a' is not a property"),
        (
            {"hostlist": ["n[3-1]"]},
            "constraints.hostlist[0]: 'n[3-1]' is not a list of hosts; write names such as",
        ),
        ({"hostlist": ["n[1-"]}, "constraints.hostlist[0]: 'n[1-' is not a list of hosts"),
        ({"hostlist": [7]}, "constraints.hostlist[0]: 7 is not a list of hosts"),
        ({"hostlist": ["n[1-999999999]"]}, "constraints.hostlist: names more than 10,000 hosts"),
        ({"hostlist": ["," * 100_000]}, "is not a list of hosts"),
        ({"hostlist": ["n" + "[1]" * 1500]}, "is not a list of hosts"),
        ({"or": [{"hostlist": ["n[1-6000]"]}, {"hostlist": ["m[1-6000]"]}]}, "names more than 10,000 hosts"),
        ({"and": ["ssd"]}, "constraints.and[0]: 'ssd' is not a constraint; write exactly one of properties"),
        ({"and": [{}], "or": [{}]}, "is not a constraint; write exactly one of properties, hostlist"),
        (
            {"and": [{"or": [{"properties": [f"p{i}{j}"]} for j in range(4)]} for i in range(5)]},
            "constraints.and: has more than 256 alternatives when written out",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(constraints: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadForm, match=re.escape(problem)):
        read_job(a_form(constraints))


def test_deep_nesting_is_refused_and_not_followed() -> None:
    constraint: dict[str, Any] = {"properties": ["a"]}
    for _ in range(60):
        constraint = {"not": [constraint]}
    with pytest.raises(BadForm, match="is not a constraint"):
        read_job(a_form(constraint))


def test_a_constraint_is_a_rule_on_names_and_properties() -> None:
    rules = read_job(a_form({"and": [{"hostlist": ["a"]}, {"properties": ["b"]}]})).spec.shape.rules
    assert rules is not None
    assert rules.affinity is not None
    assert [each.key for each in rules.affinity[0].fields] == [NODE_NAME, PROPERTY]
