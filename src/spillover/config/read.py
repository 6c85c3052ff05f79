"""spill.yaml to a configuration, with all of its problems at once."""

import re
from collections.abc import Collection
from ipaddress import ip_address

import msgspec

from spillover.agent.nursery.holes import LEAST_LIMIT
from spillover.clusters.kinds import Kinds, load_kinds
from spillover.config.clusters import read_clusters, this_machine
from spillover.config.config import (
    Address,
    Config,
    LimitsConfig,
    OnShutdown,
    RateConfig,
    RetentionConfig,
    Tls,
)
from spillover.config.policies import read_policies
from spillover.config.prices import look_at_budget, read_budgets
from spillover.control.clock import ClockBounds
from spillover.control.terms import least_lost_after
from spillover.forms.checking import check
from spillover.forms.documents import Document, read_documents
from spillover.forms.problems import BadForm, Findings, FormProblem, Path, shown
from spillover.forms.quantities import (
    MOST_LOST_AFTER,
    MOST_TIME,
    duration,
    read_memory,
)
from spillover.model.units import DAY, MINUTE, SECOND, format_duration, format_memory
from spillover.ports.blobs import BlobBounds
from spillover.wire.configfile import (
    AgentsDoc,
    BlobsDoc,
    ClockDoc,
    ConfigDoc,
    FilesDoc,
    LimitsDoc,
    RetentionDoc,
)

_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
_STORE = re.compile(r"sqlite|memory|postgres(?:ql)?://\S+", re.ASCII)
MOST_FORGET_AFTER = 3650 * DAY
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?", re.ASCII)
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+)):([0-9]{1,5})", re.ASCII)


LEAST_BODY = 64 * 2**10
MOST_BODY = 2**30
"""Bytes that `limits.body` may be."""
MOST_HEAD_TIME = 300 * SECOND


def read_config(
    text: bytes | str | None,
    source: str = "spill.yaml",
    *,
    policies: Collection[str] | None = None,
    slots: int | None = None,
    kinds: Kinds | None = None,
) -> Config:
    """The configuration of a file, or the default one for None; raises BadForm with all that is wrong with it.

    `policies` are the known ones as `wait.compute`, `kinds` those of clusters; None takes those that are installed.
    """
    if text is None:
        return default_config(slots)
    documents = read_documents(text, source)
    if len(documents) > 1:
        message = f"has {len(documents)} documents; a configuration is one"
        raise BadForm([FormProblem(source, None, "", message)])
    return _read(documents[0], source, policies, slots, load_kinds() if kinds is None else kinds)


def default_config(slots: int | None = None) -> Config:
    """This machine as one owned cluster with one agent of `slots` CPUs, or of all that it has."""
    clusters = this_machine(slots)
    return Config(clusters.specs, clusters.forms, clusters.entries)


def read_address(text: str, path: Path, found: Findings) -> Address | None:
    """Where to listen; None with the problem noted."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65_535:
        found.add(path, f"{shown(text)} is not an address; write 127.0.0.1:7070")
        return None
    host = match[1] or match[2]
    if host != "localhost" and not _is_address(host):
        found.add(path, f"{shown(host)} is not an IP address; write one of this machine, or 0.0.0.0 for all")
        return None
    return Address(host, int(match[3]))


def _is_address(text: str) -> bool:
    """Whether this is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def check_reach(address: Address, path: Path, found: Findings, *, tls: bool) -> None:
    """Note an address that others can reach, without TLS."""
    if not tls and not address.is_loopback:
        found.add(
            path,
            f"{shown(address.host)} is beyond loopback, which needs TLS: make a certificate with `spill cert init` and name it under "
            f"tls, or write 127.0.0.1:{address.port}",
        )


def _read(
    document: Document, source: str, policies: Collection[str] | None, slots: int | None, kinds: Kinds
) -> Config:
    """The configuration of one document."""
    found = Findings()
    try:
        doc = msgspec.convert(document.value, kinds.config_doc)
    except (msgspec.ValidationError, RecursionError):
        config = None
        _explain(check(kinds.config_doc, document.value, found), found, policies, slots, kinds)
        _look_at_budgets(document.value, found)
    else:
        config = _understand(doc, found, policies, slots, kinds)
    problems = [*document.problems, *found.located(source, document.lines)]
    if problems or config is None:
        raise BadForm(sorted(problems, key=lambda problem: problem.line or 0))
    return config


def _explain(
    right: object, found: Findings, policies: Collection[str] | None, slots: int | None, kinds: Kinds
) -> None:
    """Note what is wrong with the meaning of those parts whose form is right."""
    if not isinstance(right, dict):
        return
    meaning = Findings()
    try:
        doc = msgspec.convert({"apiVersion": "spillover/v1", "kind": "Config"} | right, kinds.config_doc)
    except (msgspec.ValidationError, RecursionError):  # a list that is too long: noted, and not mended
        return
    _understand(doc, meaning, policies, slots, kinds)
    for path, message in meaning.found:
        found.add(found.written(path), message)


def _look_at_budgets(value: object, found: Findings) -> None:
    """Note what is wrong with the meaning of budgets whose form is wrong too."""
    budgets = value.get("budgets") if isinstance(value, dict) else None
    kept = found.kept.get(("budgets",))
    if isinstance(budgets, list) and kept is not None:
        for at in sorted({*range(len(budgets))} - {*kept}):
            look_at_budget(budgets[at], ("budgets", at), found)


def _understand(
    doc: ConfigDoc, found: Findings, policies: Collection[str] | None, slots: int | None, kinds: Kinds
) -> Config | None:
    """What a document means; None with everything noted that is wrong with it."""
    if _STORE.fullmatch(doc.store) is None:
        found.add(("store",), f"{shown(doc.store)} is not a store; write sqlite, memory or postgresql://...")
    if "\0" in doc.data:
        found.add(("data",), "holds a NUL character")
    if _CURRENCY.fullmatch(doc.currency) is None:
        found.add(
            ("currency",), f"{shown(doc.currency)} is not a currency; write three capital letters, as USD"
        )
    http, grpc = read_address(doc.http, ("http",), found), read_address(doc.grpc, ("grpc",), found)
    if http is not None and http == grpc and http.port:
        found.add(("grpc",), "is the address of http too; write another port")
    for address, path in ((http, ("http",)), (grpc, ("grpc",))):
        if address is not None:
            check_reach(address, path, found, tls=doc.tls is not None)
    hosts = _hosts(doc.hosts, found)
    chosen = read_policies(doc.policy, policies, found)
    if slots is not None and doc.clusters is not None:
        found.add((), "names agents of its own; leave out --slots, or its clusters")
    clusters = this_machine(slots) if doc.clusters is None else read_clusters(doc.clusters, found, kinds)
    slow_after = duration(
        doc.policy.slow_after, ("policy", "slow_after"), found, least=SECOND // 1000, most=60 * SECOND
    )
    lost_after, heartbeat = _agents(doc.agents, found)
    forget_after = duration(
        doc.agents.forget_after, ("agents", "forget_after"), found, least=MINUTE, most=MOST_FORGET_AFTER
    )
    ahead = duration(doc.agents.ahead, ("agents", "ahead"), found, most=60 * SECOND)
    output_limit = read_memory(doc.agents.output_limit, ("agents", "output_limit"), found)
    if output_limit is not None and output_limit < LEAST_LIMIT:
        found.add(("agents", "output_limit"), f"is too small; the least is {format_memory(LEAST_LIMIT)}")
    retention = _retention(doc.retention, found)
    clock = _clock(doc.clock, found)
    limits = _limits(doc.limits, found)
    budgets = read_budgets(doc.budgets, found)
    blobs, max_inputs, max_outputs = _files(doc.blobs, doc.files, found)
    if found.found or http is None or grpc is None:
        return None
    return Config(
        clusters=clusters.specs,
        forms=clusters.forms,
        entries=clusters.entries,
        data=doc.data,
        store=doc.store,
        http=http,
        grpc=grpc,
        tls=None if doc.tls is None else Tls(doc.tls.cert, doc.tls.key, doc.tls.ca),
        hosts=hosts,
        currency=doc.currency,
        policies=chosen,
        slow_after=slow_after or 0,
        lost_after=lost_after,
        heartbeat=heartbeat,
        forget_after=forget_after or 0,
        ahead=ahead or 0,
        stealing=doc.agents.stealing,
        on_shutdown=OnShutdown(doc.agents.on_shutdown),
        keep_output=doc.agents.keep_output,
        output_limit=output_limit or 0,
        isolation=doc.agents.isolation,
        retention=retention,
        clock=clock,
        limits=limits,
        budgets=budgets,
        blobs=blobs,
        max_inputs=max_inputs,
        max_outputs=max_outputs,
    )


def _hosts(names: list[str], found: Findings) -> tuple[str, ...]:
    """Names by which the server is asked."""
    for at, name in enumerate(names):
        if _HOST.fullmatch(name) is None and not _is_address(name):
            found.add(
                ("hosts", at), f"{shown(name)} is not the name or address of a host; write it without a port"
            )
    return tuple(f"[{name}]" if ":" in name else name.lower() for name in names)


def _agents(doc: AgentsDoc, found: Findings) -> tuple[int, int | None]:
    """How long a task outlives the server, and how often an agent is heard from."""
    path: Path = ("agents", "lost_after")
    lost_after = duration(doc.lost_after, path, found, least=1, most=MOST_LOST_AFTER)
    heartbeat = None
    if doc.heartbeat is not None:
        heartbeat = duration(
            doc.heartbeat, ("agents", "heartbeat"), found, least=SECOND // 20, most=60 * SECOND
        )
    least = least_lost_after(heartbeat)
    if lost_after is not None and lost_after < least:
        found.add(
            path,
            f"{shown(doc.lost_after)} is less than three heartbeats; write {format_duration(least)} or more",
        )
    return lost_after or 0, heartbeat


def _limits(doc: LimitsDoc, found: Findings) -> LimitsConfig:
    """How much the server takes."""
    body = read_memory(doc.body, ("limits", "body"), found)
    if body is not None and not LEAST_BODY <= body <= MOST_BODY:
        found.add(("limits", "body"), f"{shown(doc.body)} is not between 64Ki and 1Gi")
    rate = doc.submissions_per_second
    return LimitsConfig(
        body or 0,
        doc.queued,
        doc.queued_per_project,
        None if rate is None else RateConfig(rate.rate, rate.burst),
        doc.connections,
        duration(doc.head_time, ("limits", "head_time"), found, least=SECOND, most=MOST_HEAD_TIME) or 0,
    )


def _retention(doc: RetentionDoc, found: Findings) -> RetentionConfig:
    """Nanoseconds that ended things are kept."""
    kept = {
        name: duration(getattr(doc, name), ("retention", name), found, most=MOST_TIME) or 0
        for name in ("jobs", "logs", "events")
    }
    return RetentionConfig(**kept)


def _clock(doc: ClockDoc, found: Findings) -> ClockBounds:
    """How far the wall clock is believed."""
    jump, away = (
        duration(getattr(doc, name), ("clock", name), found, least=MINUTE) or 0 for name in ("jump", "away")
    )
    return ClockBounds(jump, away)


def _files(blobs: BlobsDoc, files: FilesDoc, found: Findings) -> tuple[BlobBounds, int, int]:
    """What the store of files takes, and what one job may have of it."""
    most = read_memory(blobs.max_file, ("blobs", "max_file"), found) or 0
    total = None
    if blobs.max_total is not None:
        total = read_memory(blobs.max_total, ("blobs", "max_total"), found)
    inputs = read_memory(files.max_inputs, ("files", "max_inputs"), found) or 0
    outputs = read_memory(files.max_outputs, ("files", "max_outputs"), found) or 0
    return BlobBounds(most, total), inputs, outputs
