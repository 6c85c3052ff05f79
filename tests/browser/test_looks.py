"""Every page, light and dark, narrow and wide: readable by everybody, and nothing sticks out."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from spillover.client.flows import ENDED
from tests.browser.conftest import Person, Site
from tests.support.processes import ServerProcess

PAGES = [
    "/",
    "/jobs",
    "/submit",
    "/clusters",
    "/reservations",
    "/costs?by=day,project",
    "/policy",
    "/account",
]
TABS = ["", "#output", "#files", "#spec", "#history"]


@pytest.fixture(scope="module")
def lively(shared_server: ServerProcess, chromium: Browser) -> Iterator[dict[str, str]]:
    """Jobs in several states, so that pages have something to show."""
    site = Site(shared_server, chromium)
    someone = site.person()
    jobs = {
        "array": someone.submits(
            "array", "test $SPILL_ARRAY_INDEX != 2", "vision", array="0-9", resources={"cpu": 1}
        ),
        "gang": someone.submits(
            "gang", "printf '\\033[31mred\\033[0m plain\\n'", "physics", tasks=2, resources={"cpu": 1}
        ),
        "runs": someone.submits(
            "runs", "printf '\\033[31mred\\033[0m\\n'; sleep 600", resources={"cpu": 2}, walltime="20m"
        ),
        "waits": someone.submits(
            "waits", "true", resources={"cpu": 4}, where={"cluster": "cloud"}, hold=True
        ),
        "queued": someone.submits("queued", "true", "broke", burst="always", walltime="10h"),
        "fails": someone.submits("fails", "exit 3", retry={"exit": 1}),
    }
    someone.asks(
        "POST",
        "/v1/reservations",
        {"name": "looked-at", "start": "+2h", "length": "2h", "nodes": 1, "project": "physics"},
    )
    yield jobs
    someone.asks("POST", "/v1/reservations/cancel", {"name": "looked-at"})
    assert site.leave() == []
    with shared_server.client() as client:
        left = [job.id for job in client.jobs() if job.state not in ENDED]
        if left:
            client.cancel(*left)


def looked_at(someone: Person, path: str) -> list[str]:
    """Open a page, wait until it has everything, and return what is wrong with its looks."""
    page = someone.goes_to(path).page
    expect(page.get_by_role("main")).to_be_visible()
    expect(page.locator("[aria-busy]")).to_have_count(0)
    expect(page.get_by_text("Loading …")).to_have_count(0)
    found = Axe().run(page)
    wrong = [
        f"{path}: {each['id']} ({each['impact']}): {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found.response["violations"]
        if each["impact"] in {"serious", "critical"}
    ]
    wide, has = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    return wrong if wide <= has else [*wrong, f"{path}: {wide} pixels wide in a window of {has}"]


@pytest.mark.parametrize("width", [400, 2000])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_hinders_people(site: Site, lively: dict[str, str], scheme: str, width: int) -> None:
    someone = site.person(viewport={"width": width, "height": 900}, color_scheme=scheme)
    paths = [*PAGES, *(f"/jobs/{lively['gang']}{tab}" for tab in TABS), f"/jobs/{lively['array']}#members"]
    paths += [f"/jobs/{lively[name]}" for name in ("queued", "waits", "runs", "fails")]
    paths += ["/clusters?machine=onprem/n1", "/jobs/nobody", f"/submit?from={lively['runs']}"]
    assert [each for path in paths for each in looked_at(someone, path)] == []
    stranger = site.person(role=None, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert looked_at(stranger, "/sign-in") == []


def test_the_page_is_used_with_the_keyboard_alone(site: Site, lively: dict[str, str]) -> None:
    page = site.person().goes_to("/").page
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type(lively["gang"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="gang")).to_be_visible()
    page.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Output")).to_be_focused()
    expect(page.get_by_role("log")).to_contain_text("red plain")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_the_theme_is_chosen_and_kept(site: Site) -> None:
    page = site.person(color_scheme="light").goes_to("/").page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.get_by_role("button", name="Change the theme")
    button.click()
    assert page.evaluate(ground) == light
    button.click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert page.evaluate(ground) == dark


def test_a_narrow_page_has_its_menu_behind_a_button(site: Site) -> None:
    page = site.person(viewport={"width": 400, "height": 800}).goes_to("/").page
    link = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Costs")
    expect(link).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    link.click()
    expect(page.get_by_role("heading", name="Costs and usage")).to_be_visible()
    expect(link).to_be_hidden()
