"""Real servers, and people who look at them with a real browser: the Chromium of the system, which `make tools` installs."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect, sync_playwright

from spillover.client.flows import ENDED
from tests.support.processes import ServerProcess, nothing_left, write_config

HERE: Final = Path(__file__).parent
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE: Final = 15_000
"""Milliseconds to wait for what a page shows, which takes a fraction of that unless other programs take all cores."""
SETTINGS: Final[dict[str, Any]] = {
    "policy": {"wait": {"compute": {"coefficient": 0.5}}},
    "budgets": [
        {"project": "broke", "per": "month", "limit": 0.01},
        {"project": "vision", "per": "month", "limit": 50},
    ],
    "clusters": [
        {
            "name": "onprem",
            "role": "owned",
            "local": [
                {"name": "n1", "cpu": 2, "memory": "2Gi"},
                {"name": "n2", "cpu": 2, "memory": "2Gi"},
            ],
        },
        {
            "name": "cloud",
            "role": "rented",
            "local": [{"name": "v1", "cpu": 4, "memory": "4Gi"}],
            "price": {"cpu_hour": 0.5},
            "billing": {"step": "1s", "minimum": "60s"},
        },
    ],
}


@pytest.hookimpl(tryfirst=True)  # before some are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="there is no chromium; `make tools` installs it"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser. As root its sandbox does not start, and the pages are our own."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        yield browser
        browser.close()


class Person:
    """Somebody with a browser of their own, which holds their sign-in."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        context.set_default_timeout(PATIENCE)
        self.url = url
        self.context = context
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        """Errors of scripts, and what the policy of the page refused. There must be none."""
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.faults.append(said.text) if "Content Security Policy" in said.text else None,
        )

    def goes_to(self, path: str) -> "Person":
        """Open an address, as by a link from elsewhere."""
        self.page.goto(self.url + path)
        return self

    def signs_in(self, token: str) -> "Person":
        """Sign in through the page, and wait for what it shows then."""
        self.goes_to("/sign-in")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.locator("main#main").wait_for()
        return self

    def asks(self, method: str, path: str, body: object = None) -> Any:
        """Ask the API as this person, beside the page."""
        answer = self.context.request.fetch(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": "application/json", "Origin": self.url},
        )
        assert answer.ok, f"{method} {path}: {answer.status} {answer.text()}"
        return answer.json()

    def submits(self, name: str, run: str, project: str = "default", **spec: object) -> str:
        """Submit a job beside the page; return its id."""
        job = {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "metadata": {"name": name, "project": project},
            "spec": {"run": run, "workdir": "/tmp"} | spec,
        }
        answer: str = self.asks("POST", "/v1/jobs", job)["jobs"][0]
        return answer


class Site:
    """A server, and people who look at it."""

    def __init__(self, server: ServerProcess, browser: Browser) -> None:
        self.server = server
        self._browser = browser
        self._people: list[Person] = []

    @property
    def token(self) -> str:
        """The token of the server, which may do everything."""
        return (self.server.data / "token").read_text().strip()

    def token_of(self, role: str, user: str, project: str | None = None) -> str:
        """Create a token."""
        words = ["token", "create", "--role", role, "--user", user]
        made = self.server.spill(*words, *(["--project", project] if project else []))
        assert made.returncode == 0, made.stderr
        return made.stdout.split()[-1]

    def person(
        self, role: str | None = "admin", user: str = "ada", project: str | None = None, **looks: Any
    ) -> Person:
        """Return somebody with a new browser, signed in unless there is no role. `looks` are options of its window."""
        looks.setdefault("viewport", {"width": 1280, "height": 900})
        someone = Person(self._browser.new_context(**looks), self.server.url)
        self._people.append(someone)
        return someone if role is None else someone.signs_in(self.token_of(role, user, project))

    def leave(self) -> list[str]:
        """Close all windows; return what went wrong in them."""
        faults = [fault for each in self._people for fault in each.faults]
        for each in self._people:
            try:
                each.context.close()
            except Error as error:
                faults.append(str(error))
        self._people.clear()
        return faults


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for all tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("site")
    server = ServerProcess(folder, *write_config(folder, **SETTINGS)).up()
    yield server
    server.clear()
    nothing_left(folder)


@pytest.fixture
def site(shared_server: ServerProcess, chromium: Browser) -> Iterator[Site]:
    """The shared server, and windows that are closed in the end. No job is left to run."""
    made = Site(shared_server, chromium)
    yield made
    faults = made.leave()
    with shared_server.client() as client:
        left = [job.id for job in client.jobs() if job.state not in ENDED]
        if left:
            client.cancel(*left)
    assert faults == []


@pytest.fixture
def sites(tmp_path: Path, chromium: Browser) -> Iterator[Callable[..., Site]]:
    """Make servers of one's own, with settings that replace those of the shared one."""
    made: list[Site] = []

    def make(**settings: Any) -> Site:
        server = ServerProcess(tmp_path, *write_config(tmp_path, **SETTINGS | settings))
        made.append(Site(server, chromium))
        server.up()
        return made[-1]

    yield make
    faults = [fault for each in made for fault in each.leave()]
    for each in made:
        each.server.clear()
    nothing_left(tmp_path)
    assert faults == []
