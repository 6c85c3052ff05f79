"""A page that is left open finds its server again, and stays small."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import Site


def test_a_page_finds_a_server_that_was_killed_and_comes_back(sites: Callable[..., Site]) -> None:
    site = sites()
    someone = site.person("submit", "bo")
    page = someone.goes_to("/jobs").page
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    state = page.get_by_role("banner").get_by_role("status")
    expect(state).to_have_text("live")
    site.server.kill()
    expect(state).to_have_text("reconnecting …")
    expect(page.get_by_text("The server does not answer. What is shown may be old")).to_be_visible()
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    site.server.up()
    expect(state).to_have_text("live")
    expect(page.get_by_text("The server does not answer.")).to_be_hidden()
    # The page follows the new server, and nobody has to sign in again.
    someone.submits("after", "true", hold=True)
    expect(page.get_by_role("link", name="after")).to_be_visible()


def test_output_goes_on_after_the_server_was_away(sites: Callable[..., Site]) -> None:
    site = sites(agents={"on_shutdown": "keep"})
    someone = site.person("submit", "bo")
    gate = site.server.folder / "go"
    job = someone.submits(
        "goes-on", f"echo before; until test -e {gate}; do sleep 0.05; done; echo after", walltime="5m"
    )
    page = someone.goes_to(f"/jobs/{job}#output").page
    output = page.get_by_role("log", name="Output")
    expect(output).to_contain_text("before")
    site.server.kill()
    expect(page.get_by_text("the output stopped coming; connecting again")).to_be_visible()
    site.server.up()
    gate.touch()
    expect(output.get_by_text("after", exact=True)).to_be_visible()
    expect(output.get_by_text("before", exact=True)).to_have_count(1)


def test_a_page_opened_while_the_server_is_away_says_so_and_comes_by_itself(
    sites: Callable[..., Site],
) -> None:
    site = sites()
    someone = site.person("submit", "bo")
    page = someone.goes_to("/jobs").page
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    site.server.kill()
    expect(page.get_by_role("banner").get_by_role("status")).to_have_text("reconnecting …")
    page.get_by_role("link", name="Costs", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="the server does not answer").first).to_be_visible()
    site.server.up()
    expect(page.get_by_role("heading", name="Budgets")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="project broke")).to_be_visible()


def test_an_overview_that_is_left_open_keeps_its_size(site: Site) -> None:
    someone = site.person("submit", "bo")
    page = someone.goes_to("/").page
    expect(page.get_by_role("link", name="n1: free")).to_be_visible()
    count = "document.querySelectorAll('*').length"
    sizes: list[int] = []
    for _ in range(6):
        jobs = [someone.submits("short", "true") for _ in range(10)]
        for job in jobs:
            someone.asks("GET", f"/v1/jobs/{job}/wait?timeout=60")
        expect(page.get_by_role("link", name="n1: free")).to_be_visible()
        sizes.append(page.evaluate(count))
    assert sizes[-1] <= sizes[0] + 60, sizes


def test_what_one_does_is_not_disturbed_by_what_happens(site: Site) -> None:
    someone = site.person("submit", "bo")
    first = someone.submits("first", "true", "watched", hold=True)
    page = someone.goes_to("/").page
    project = page.get_by_role("link", name="watched")
    project.focus()
    someone.submits("second", "true", "watched", hold=True)
    expect(page.get_by_role("row").filter(has_text="watched").get_by_role("cell").nth(2)).to_have_text("2")
    expect(project).to_be_focused()
    someone.goes_to("/jobs?project=watched")
    box = page.locator(f'[data-key="pick-{first}"]')
    box.check()
    someone.submits("third", "true", "watched", hold=True)
    expect(page.get_by_role("link", name="third")).to_be_visible()
    expect(box).to_be_checked()
    expect(box).to_be_focused()
