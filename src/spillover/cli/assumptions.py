"""Reads the assumptions of `spill why --if`: `cpu=2`, `policy=wait=zero`, `machines=onprem:2x48cpu,8gpu`."""

from typing import Final

from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import BadForm, FormProblem, shown
from spillover.sim.fleet import read_owned
from spillover.wire.api import AmountsDoc, MachinesDoc, WhatIf

_NAMES: Final = ("cpu", "memory", "gpu", "policy", "machines")
_SOURCE: Final = "--if"


def read_assumption(texts: list[str]) -> WhatIf:
    """Combine all assumptions into one question; raise BadForm with every problem."""
    amounts: dict[str, str] = {}
    machines: list[MachinesDoc] = []
    policies: list[str] = []
    problems: list[FormProblem] = []
    for text in texts:
        line = OneLine(text)
        left, value = line.whole.pair()
        name = left.strip().text
        if value is None or name not in _NAMES:
            line.wrong(
                line.whole,
                f"{shown(text)} is not an assumption; write NAME=VALUE with one of {', '.join(_NAMES)}",
            )
        elif name == "policy":
            policies.append(value.text)
        elif name == "machines":
            machines += _machines(value, line)
        elif name == "gpu" and not value.text.strip().isdecimal():
            line.wrong(value, f"{shown(value.text)} is not a number of GPUs; write gpu=1")
        else:
            amounts[name] = value.text.strip()
        try:
            line.check(_SOURCE)
        except BadForm as bad:
            problems += bad.problems
    if problems:
        raise BadForm(problems)
    asked = None
    if amounts:
        gpu = int(amounts["gpu"]) if "gpu" in amounts else None
        asked = AmountsDoc(amounts.get("cpu"), amounts.get("memory"), gpu)
    return WhatIf(asked, ",".join(policies) or None, machines)


def _machines(value: Piece, line: OneLine) -> list[MachinesDoc]:
    """Parse additional machines of one cluster, `onprem:2` or `onprem:2x48cpu,8gpu`."""
    cluster, more = value.pair(":")
    number = "" if more is None else more.strip().text
    if not number or not cluster.strip().text:
        line.wrong(
            value,
            f"{shown(value.text)} is not a number of machines; write machines=CLUSTER:2 or machines=CLUSTER:2x48cpu,8gpu",
        )
        return []
    if number.isdecimal():
        return [MachinesDoc(cluster.strip().text, int(number))]
    try:
        fleet = read_owned(number)
    except BadForm as bad:
        for problem in bad.problems:
            line.wrong(value, problem.message)
        return []
    node = fleet.node
    cpu = f"{node.cpu}m" if fleet.limits_cpu else None
    memory = str(node.memory) if fleet.limits_memory else None
    return [MachinesDoc(cluster.strip().text, fleet.count, AmountsDoc(cpu, memory, node.gpu))]
