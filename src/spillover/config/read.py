"""Reads spill.yaml into a configuration, and reports all of its problems at once."""

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address

import msgspec

from spillover.agent.nursery.holes import LEAST_LIMIT
from spillover.clusters.kinds import Kinds, load_kinds
from spillover.config.access import read_access
from spillover.config.clusters import read_clusters, this_machine
from spillover.config.config import (
    Address,
    ClusterSource,
    Config,
    LimitsConfig,
    OnShutdown,
    RateConfig,
    RetentionConfig,
    TelemetryConfig,
    Tls,
)
from spillover.config.notifications import read_notifications
from spillover.config.policies import read_policies
from spillover.config.pools import name_providers
from spillover.config.prices import look_at_budget, read_budgets
from spillover.config.queues import read_queues
from spillover.config.urls import wrong_url
from spillover.control.agents.lease_terms import least_lost_after
from spillover.control.live.clock import ClockBounds
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
    TelemetryDoc,
)

_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
_STORE = re.compile(r"sqlite|memory|postgres(?:ql)?://\S+", re.ASCII)
MOST_FORGET_AFTER = 3650 * DAY
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?", re.ASCII)
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+)):([0-9]{1,5})", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}", re.ASCII)
_REACHED = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+))(?::([0-9]{1,5}))?", re.ASCII)


LEAST_BODY = 64 * 2**10
MOST_BODY = 2**30
"""Bounds of `limits.body`, in bytes."""
MOST_HEAD_TIME = 300 * SECOND


def read_config(
    text: bytes | str | None,
    source: str = "spill.yaml",
    *,
    policies: Collection[str] | None = None,
    slots: int | None = None,
    kinds: Kinds | None = None,
) -> Config:
    """Read the configuration of a file, or the default for None; raise BadForm with all problems.

    `policies` are the known policies, such as `wait.compute`, and `kinds` the cluster kinds; None for the installed
    ones.
    """
    if text is None:
        return default_config(slots)
    documents = read_documents(text, source)
    if len(documents) > 1:
        message = f"has {len(documents)} documents; a configuration must be one document"
        raise BadForm([FormProblem(source, None, "", message)])
    return _read(documents[0], source, policies, slots, load_kinds() if kinds is None else kinds)


def default_config(slots: int | None = None) -> Config:
    """Return this machine as one owned cluster with one agent of `slots` CPUs, or of all CPUs."""
    clusters = this_machine(slots)
    return Config(clusters.specs, clusters.forms, clusters.entries, clusters_from=ClusterSource.DEFAULT)


def read_address(text: str, path: Path, found: Findings) -> Address | None:
    """Read an address to listen on; None and a problem in `found` if it is invalid."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65_535:
        found.add(path, f"{shown(text)} is not an address; write HOST:PORT, such as 127.0.0.1:7070")
        return None
    host = match[1] or match[2]
    if host != "localhost" and not _is_address(host):
        found.add(
            path, f"{shown(host)} is not an IP address; write an address of this machine, or 0.0.0.0 for all"
        )
        return None
    return Address(host, int(match[3]))


def _is_address(text: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def check_reach(address: Address, path: Path, found: Findings, *, tls: bool) -> None:
    """Add a problem for an address that is not loopback and has no TLS."""
    if not tls and not address.is_loopback:
        found.add(
            path,
            f"{shown(address.host)} is not a loopback address and needs TLS; run `spill cert init` and set tls, or write 127.0.0.1:{address.port}",
        )


def _read(
    document: Document, source: str, policies: Collection[str] | None, slots: int | None, kinds: Kinds
) -> Config:
    """Read the configuration of one document."""
    found = Findings()
    try:
        doc = msgspec.convert(document.value, kinds.config_doc)
    except (msgspec.ValidationError, RecursionError):
        config = None
        right = check(kinds.config_doc, document.value, found)
        name_providers(found)
        _explain(right, found, policies, slots, kinds)
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
    """Add problems with the meaning of the parts whose form is valid."""
    if not isinstance(right, dict):
        return
    meaning = Findings()
    try:
        doc = msgspec.convert({"apiVersion": "spillover/v1", "kind": "Config"} | right, kinds.config_doc)
    except (msgspec.ValidationError, RecursionError):  # a list that is too long: reported, but not shortened
        return
    _understand(doc, meaning, policies, slots, kinds)
    for path, message in meaning.found:
        found.add(found.written(path), message)


def _look_at_budgets(value: object, found: Findings) -> None:
    """Add problems with the meaning of budgets whose form is invalid."""
    budgets = value.get("budgets") if isinstance(value, dict) else None
    kept = found.kept.get(("budgets",))
    if isinstance(budgets, list) and kept is not None:
        for at in sorted({*range(len(budgets))} - {*kept}):
            look_at_budget(budgets[at], ("budgets", at), found)


def _understand(
    doc: ConfigDoc, found: Findings, policies: Collection[str] | None, slots: int | None, kinds: Kinds
) -> Config | None:
    """Convert a document to a configuration; None and problems in `found` if it is invalid."""
    if _STORE.fullmatch(doc.store) is None:
        found.add(("store",), f"{shown(doc.store)} is not a store; write sqlite, memory or postgresql://...")
    if "\0" in doc.data:
        found.add(("data",), "contains a NUL character")
    if _CURRENCY.fullmatch(doc.currency) is None:
        found.add(
            ("currency",),
            f"{shown(doc.currency)} is not a currency; write three capital letters, such as USD",
        )
    http, grpc = read_address(doc.http, ("http",), found), read_address(doc.grpc, ("grpc",), found)
    if http is not None and http == grpc and http.port:
        found.add(("grpc",), "is the same address as http; use another port")
    for address, path in ((http, ("http",)), (grpc, ("grpc",))):
        if address is not None:
            check_reach(address, path, found, tls=doc.tls is not None)
    hosts = _hosts(doc.hosts, found)
    chosen = read_policies(doc.policy, policies, found)
    if slots is not None and doc.clusters is not None:
        found.add((), "has clusters of its own; remove --slots, or the clusters")
    clusters = this_machine(slots) if doc.clusters is None else read_clusters(doc.clusters, found, kinds)
    slow_after = duration(
        doc.policy.slow_after, ("policy", "slow_after"), found, least=SECOND // 1000, most=60 * SECOND
    )
    reached = _reached(doc.agents.address, found)
    lost_after, heartbeat = _agents(doc.agents, found)
    forget_after = duration(
        doc.agents.forget_after, ("agents", "forget_after"), found, least=MINUTE, most=MOST_FORGET_AFTER
    )
    prepare_within = duration(
        doc.agents.prepare_within, ("agents", "prepare_within"), found, least=SECOND, most=MOST_LOST_AFTER
    )
    ahead = duration(doc.agents.ahead, ("agents", "ahead"), found, most=60 * SECOND)
    output_limit = read_memory(doc.agents.output_limit, ("agents", "output_limit"), found)
    if output_limit is not None and output_limit < LEAST_LIMIT:
        found.add(("agents", "output_limit"), f"is too small; the minimum is {format_memory(LEAST_LIMIT)}")
    retention = _retention(doc.retention, found)
    clock = _clock(doc.clock, found)
    limits = _limits(doc.limits, found)
    access = read_access(doc.access, found)
    budgets = read_budgets(doc.budgets, found)
    blobs, max_inputs, max_outputs, max_state = _files(doc.blobs, doc.files, found)
    queues = read_queues(doc.queues, found)
    telemetry = _telemetry(doc.telemetry, found)
    notifications = read_notifications(doc.notifications, found)
    if found.found or http is None or grpc is None:
        return None
    return Config(
        clusters=clusters.specs,
        forms=clusters.forms,
        entries=clusters.entries,
        providers=clusters.providers,
        clusters_from=ClusterSource.DEFAULT if doc.clusters is None else ClusterSource.FILE,
        data=doc.data,
        store=doc.store,
        http=http,
        grpc=grpc,
        tls=None if doc.tls is None else Tls(doc.tls.cert, doc.tls.key, doc.tls.ca),
        hosts=hosts,
        currency=doc.currency,
        policies=chosen,
        slow_after=slow_after or 0,
        address=reached,
        lost_after=lost_after,
        heartbeat=heartbeat,
        forget_after=forget_after or 0,
        prepare_within=prepare_within or 0,
        ahead=ahead or 0,
        stealing=doc.agents.stealing,
        on_shutdown=OnShutdown(doc.agents.on_shutdown),
        keep_output=doc.agents.keep_output,
        output_limit=output_limit or 0,
        isolation=doc.agents.isolation,
        retention=retention,
        clock=clock,
        limits=limits,
        access=access,
        secrets_key=doc.secrets.key_file,
        telemetry=telemetry,
        budgets=budgets,
        queues=queues,
        notifications=notifications,
        blobs=blobs,
        max_inputs=max_inputs,
        max_outputs=max_outputs,
        max_state=max_state,
    )


def _reached(text: str | None, found: Findings) -> tuple[str, int] | None:
    """Read where rented machines reach the server, port 0 if it says none; None if nothing was written."""
    if text is None:
        return None
    match = _REACHED.fullmatch(text)
    host = "" if match is None else match[1] or match[2]
    port = 0 if match is None or match[3] is None else int(match[3])
    if match is None or port > 65_535 or (_HOST.fullmatch(host) is None and not _is_address(host)):
        told = f"{shown(text)} is not where machines reach a server; write HOST or HOST:PORT, such as spill.example.org:7071"
        found.add(("agents", "address"), told)
        return None
    return host, port


def _hosts(names: list[str], found: Findings) -> tuple[str, ...]:
    """Read the host names that the server accepts."""
    for at, name in enumerate(names):
        if _HOST.fullmatch(name) is None and not _is_address(name):
            found.add(("hosts", at), f"{shown(name)} is not a host name or address; write it without a port")
    return tuple(f"[{name}]" if ":" in name else name.lower() for name in names)


def _agents(doc: AgentsDoc, found: Findings) -> tuple[int, int | None]:
    """Read how long a task keeps running without the server, and the heartbeat interval."""
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
    """Read how much the server accepts."""
    body = read_memory(doc.body, ("limits", "body"), found)
    if body is not None and not LEAST_BODY <= body <= MOST_BODY:
        found.add(("limits", "body"), f"{shown(doc.body)} is out of range; write 64Ki to 1Gi")
    rate = doc.submissions_per_second
    return LimitsConfig(
        body or 0,
        doc.queued,
        doc.queued_per_project,
        None if rate is None else RateConfig(rate.rate, rate.burst),
        doc.connections,
        duration(doc.head_time, ("limits", "head_time"), found, least=SECOND, most=MOST_HEAD_TIME) or 0,
        doc.too_large,
    )


def _telemetry(doc: TelemetryDoc, found: Findings) -> TelemetryConfig:
    """Read where traces go."""
    if doc.endpoint is not None and (wrong := wrong_endpoint(doc.endpoint, doc.headers)):
        found.add(("telemetry", "endpoint"), wrong)
    for name, value in doc.headers.items():
        if not is_header(name, value):
            found.add(("telemetry", "headers", name), "is not a header: letters, digits and -, and one line")
    return TelemetryConfig(doc.endpoint, doc.headers, doc.ca, doc.sample, doc.service)


def wrong_endpoint(text: str, headers: Mapping[str, str]) -> str:
    """Return why a text is not the URL of a receiver of traces that gets these headers; empty if it is."""
    private = "the headers" if headers else ""
    return wrong_url(text, "it like http://localhost:4318", instead="`telemetry.headers`", private=private)


def is_header(name: str, value: str) -> bool:
    """Return whether a name and a value can be a header of a request."""
    return _HEADER.fullmatch(name) is not None and value.isascii() and (value.isprintable() or not value)


def _retention(doc: RetentionDoc, found: Findings) -> RetentionConfig:
    """Read how long to keep past data, in nanoseconds."""
    kept = {
        name: duration(getattr(doc, name), ("retention", name), found, most=MOST_TIME) or 0
        for name in RetentionDoc.__struct_fields__
    }
    return RetentionConfig(**kept)


def _clock(doc: ClockDoc, found: Findings) -> ClockBounds:
    """Read how far to trust the wall clock."""
    jump, away = (
        duration(getattr(doc, name), ("clock", name), found, least=MINUTE) or 0 for name in ("jump", "away")
    )
    return ClockBounds(jump, away)


def _files(blobs: BlobsDoc, files: FilesDoc, found: Findings) -> tuple[BlobBounds, int, int, int]:
    """Read the limits of the blob store, and of the files of one job."""
    most = read_memory(blobs.max_file, ("blobs", "max_file"), found) or 0
    total = None
    if blobs.max_total is not None:
        total = read_memory(blobs.max_total, ("blobs", "max_total"), found)
    inputs = read_memory(files.max_inputs, ("files", "max_inputs"), found) or 0
    outputs = read_memory(files.max_outputs, ("files", "max_outputs"), found) or 0
    state = read_memory(files.max_state, ("files", "max_state"), found) or 0
    return BlobBounds(most, total), inputs, outputs, state
