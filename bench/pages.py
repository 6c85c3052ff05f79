"""Measures open pages: what 50 of them cost a server with 100,000 live jobs and 1,000 machines, and what one costs a browser.

The pages that the server feeds are readers of the live stream in a process of their own; one more is a real page in
Chromium, if Playwright and Chromium are there. Rounds with and without pages alternate, with the same jobs.
"""

import asyncio
import contextlib
import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from bench.many_agents import Fakes
from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import Connection, Running, folder, job, serving, until

CLUSTER: Final = "fakes"
CONFIG: Final = f"""\
apiVersion: spillover/v1
kind: Config
clusters: [{{name: {CLUSTER}, kind: agents, role: owned}}]
"""
PAGES: Final = 50
PROJECTS: Final = 40
BATCH: Final = 100
CHUNK: Final = 5_000
PATIENCE: Final = 600.0
FIRST: Final = 5
"""Times that the page is opened."""


def measure(options: Options) -> Report:
    """Measure pages on one server."""
    agents, live, jobs, rounds, minutes = (1_000, 100_000, 4_000, 5, 10.0)
    if options.quick:
        agents, live, jobs, rounds, minutes = (200, 5_000, 500, 1, 0.5)
    if options.long:
        minutes = 60.0
    report = Report("Open pages")
    with folder("pages") as path:
        (path / "data").mkdir(parents=True)
        (path / "spill.yaml").write_text(CONFIG, encoding="utf-8")
        with (
            serving(path / "data", "--config", str(path / "spill.yaml")) as server,
            contextlib.closing(Fakes(server.data, path, agents, calls=False)) as fakes,
        ):
            until(fakes.all_there, PATIENCE, 0.2)
            _fill(server, live)
            tell(f"{agents:,} machines, {live:,} jobs wait")
            _settle(server)
            _of_server(report, server, fakes, jobs, rounds)
            _of_browser(report, server, fakes, minutes)
    report.notes.append(
        f"{agents:,} machines with one slot each; {live:,} jobs of {PROJECTS} projects that wait for a machine "
        f"that does not come, and {jobs:,} jobs of no length a round."
    )
    return report


def _fill(server: Running, count: int) -> None:
    """Submit jobs that wait for what no machine offers."""
    with contextlib.closing(server.connect()) as http:
        for first in range(0, count, CHUNK):
            docs = [
                {
                    **job(f"waits-{at % 500}", command=["/bin/true"], workdir="/", needs=["nobody"]),
                    "metadata": {"name": f"waits-{at % 500}", "project": f"project-{at % PROJECTS}"},
                }
                for at in range(first, min(count, first + CHUNK))
            ]
            http.ask(http.request("POST", "/v1/jobs", json.dumps({"jobs": docs}).encode()))


def _settle(server: Running) -> None:
    """Wait until the server has nothing more to do."""

    def idle() -> bool:
        start = server.cpu().own
        time.sleep(2)
        return server.cpu().own - start < 0.2

    until(idle, 120, 0)


# --- the server


def _of_server(report: Report, server: Running, fakes: Fakes, jobs: int, rounds: int) -> None:
    """Measure the work of the server with and without pages."""
    without: list[tuple[float, float]] = []
    with_pages: list[tuple[float, float]] = []
    _flow(server, fakes, jobs // 4)
    for number in range(rounds):
        without.append(_flow(server, fakes, jobs))
        with _pages(server, PAGES):
            with_pages.append(_flow(server, fakes, jobs))
        tell(
            f"round {number + 1}: {without[-1][0]:,.0f} jobs/s without pages, {with_pages[-1][0]:,.0f} with {PAGES}"
        )
    nothing = _idle(server)
    with _pages(server, PAGES):
        resting = _idle(server)
    rate = statistics.median(more / less for (less, _), (more, _) in zip(without, with_pages, strict=True))
    cpu = statistics.median(more - less for (_, less), (_, more) in zip(without, with_pages, strict=True))
    busy = _share(with_pages) - _share(without)
    table = Table("The server; medians of alternating rounds", ("", "without pages", f"with {PAGES} pages"))
    table.add(
        "jobs/s",
        statistics.median(one for one, _ in without),
        statistics.median(one for one, _ in with_pages),
    )
    table.add(
        "server CPU ms a job",
        statistics.median(one for _, one in without),
        statistics.median(one for _, one in with_pages),
    )
    table.add("% of a core at rest", nothing * 100, resting * 100)
    report.tables.append(table)
    report.figures["jobs/s with pages / without"] = rate
    report.figures["CPU ms a job that pages add"] = cpu
    report.figures["% of a core for each page at rest"] = (resting - nothing) / PAGES * 100
    report.goals.append(Goal(f"jobs/s with {PAGES} pages / without", rate, 0.95, at_most=False))
    report.goals.append(Goal("% of a core for each page under load", busy / PAGES * 100, 0.5, at_most=True))
    report.goals.append(
        Goal("% of a core for each page at rest", (resting - nothing) / PAGES * 100, 0.1, at_most=True)
    )


def _share(rounds: list[tuple[float, float]]) -> float:
    """Return the part of a core that the server uses for jobs."""
    return statistics.median(rate * milliseconds / 1e3 for rate, milliseconds in rounds)


def _flow(server: Running, fakes: Fakes, count: int) -> tuple[float, float]:
    """Run jobs one batch after the other; return jobs a second, and CPU milliseconds of the server for each."""
    with contextlib.closing(server.connect()) as http:
        done, start, begin = fakes.status().ended, server.cpu().own, time.monotonic()
        for _ in range(0, count, BATCH):
            docs = [job("true", command=["/bin/true"], workdir="/") for _ in range(BATCH)]
            http.ask(http.request("POST", "/v1/jobs", json.dumps({"jobs": docs}).encode()))
            _wait_for_jobs(http)
        until(lambda: fakes.status().ended >= done + count, 60, 0.05)
        seconds = time.monotonic() - begin
        return count / seconds, (server.cpu().own - start) / count * 1e3


def _wait_for_jobs(http: Connection) -> None:
    """Wait until few jobs run, so that batches follow each other without a queue of their own."""
    while http.get("/v1/server")["running"] > BATCH:
        time.sleep(0.005)


def _idle(server: Running) -> float:
    """Return the part of a core that the server uses while nothing happens."""
    time.sleep(1)
    start, begin = server.cpu().own, time.monotonic()
    time.sleep(15)
    return (server.cpu().own - start) / (time.monotonic() - begin)


@contextlib.contextmanager
def _pages(server: Running, count: int) -> Iterator[None]:
    """Read the live stream with so many connections, in another process."""
    words = [sys.executable, "-m", "bench.pages", "--read", server.host, str(server.port), str(count)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(server.token.encode() + b"\n")
    process.stdin.flush()
    try:
        process.stdout.readline()  # all pages have what they show
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


async def read(host: str, port: int, count: int, token: str) -> None:
    """Follow the stream with so many connections; say when all of them have all machines."""
    full = asyncio.Semaphore(0)

    async def page() -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
        head = f"GET /v1/live HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        async for line in reader:
            if line.startswith(b"event: machines"):
                full.release()
                break
        while await reader.read(1 << 20):
            pass

    pages = [asyncio.create_task(page()) for _ in range(count)]
    for _ in range(count):
        await full.acquire()
    print("full", flush=True)
    await asyncio.gather(*pages)


# --- the browser


def _of_browser(report: Report, server: Running, fakes: Fakes, minutes: float) -> None:
    """Measure a real page."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - not everybody who measures has it
    except ImportError:
        program = None
    if program is None:
        report.notes.append("the browser was left out: it needs Playwright and Chromium (`make tools`)")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page: Any = context.new_page()
        url = f"http://{server.host}:{server.port}"
        signed = context.request.post(
            f"{url}/v1/sign-in", data={"token": server.token}, headers={"origin": url}
        )
        assert signed.ok, signed.text()
        took = []
        for _ in range(FIRST):
            begin = time.monotonic()
            page.goto(url)
            page.wait_for_selector(".heat .tile", timeout=60_000)
            took.append(time.monotonic() - begin)
        tell(f"the first useful picture after {statistics.median(took):.2f} s")
        before = _memory(context, page)
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            _flow(server, fakes, BATCH * 5)
            page.wait_for_timeout(200)
        after = _memory(context, page)
        browser.close()
    grown = (after[0] - before[0]) / minutes * 60
    table = Table(f"A page in Chromium, {minutes:g} minutes of changes", ("", "at first", "afterwards"))
    table.add("JavaScript heap, MB", before[0] / 1e6, after[0] / 1e6)
    table.add("nodes", before[1], after[1])
    report.tables.append(table)
    report.figures["seconds to the first useful picture"] = statistics.median(took)
    report.figures["MB of heap afterwards"] = after[0] / 1e6
    report.goals += [
        Goal("seconds to the first useful picture", statistics.median(took), 2.0, at_most=True),
        Goal("MB of heap afterwards", after[0] / 1e6, 50.0, at_most=True),
        Goal("MB of heap that an hour adds", grown / 1e6, 10.0, at_most=True),
    ]


def _memory(context: Any, page: Any) -> tuple[float, int]:
    """Return the bytes of the JavaScript heap of a page after a collection, and its nodes."""
    session = context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return metrics["JSHeapUsedSize"], int(metrics["Nodes"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        _, _, host, port, count = sys.argv
        asyncio.run(read(host, int(port), int(count), sys.stdin.readline().strip()))
    else:
        main(measure, __doc__)
