"""People drain machines, pause pools, reserve nodes, and look at money."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import SETTINGS, Site


def test_an_agent_is_drained_with_a_reason_that_everybody_sees(site: Site) -> None:
    admin, other = site.person(), site.person("read", "cy")
    overview = other.goes_to("/").page
    tile = overview.get_by_role("link", name=re.compile(r"^n1: "))
    expect(tile).to_have_attribute("aria-label", re.compile("free"))
    page = admin.goes_to("/clusters").page
    page.locator('[data-key="drain-onprem/n1"]').click()
    page.get_by_role("dialog").get_by_label("Why? Everybody sees it.").fill("new disk")
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.get_by_role("row").filter(has_text="n1").first).to_contain_text("by ada: new disk")
    # The other one has not touched the page since.
    expect(tile).to_have_attribute("aria-label", "n1: draining")
    page.locator('[data-key="resume-onprem/n1"]').click()
    expect(page.get_by_text("n1 takes jobs again")).to_be_visible()
    expect(tile).to_have_attribute("aria-label", re.compile("free"))


def test_a_machine_shows_what_runs_on_it_and_the_arrow_keys_move_between_machines(site: Site) -> None:
    someone = site.person("submit", "bo")
    someone.submits("shown", "sleep 300", resources={"cpu": 2}, walltime="10m")
    page = someone.goes_to("/").page
    tile = page.get_by_role("link", name=re.compile(r"100 % used, 1 task: shown"))
    expect(tile).to_be_visible()
    page.get_by_role("link", name=re.compile(r"^n1: ")).focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("link", name=re.compile(r"^n2: "))).to_be_focused()
    expect(page.get_by_role("tooltip")).to_contain_text("onprem/n2")
    tile.click()
    expect(page.get_by_role("table", name=re.compile("Tasks on"))).to_contain_text("shown")


def test_a_job_that_its_budget_cannot_pay_for_says_so(site: Site) -> None:
    someone = site.person("submit", "bo")
    job = someone.submits("dear", "true", "broke", burst="always", walltime="1h", resources={"cpu": 1})
    page = someone.goes_to(f"/jobs/{job}").page
    why = page.get_by_label("Why", exact=True)
    expect(why).to_contain_text("the budget of project broke is 0.01")
    expect(why.get_by_role("row").filter(has_text="cloud")).to_contain_text("per month left")
    someone.goes_to("/costs")
    expect(page.get_by_role("row").filter(has_text="project broke")).to_contain_text("of 0.01")


def test_usage_is_downloaded_as_csv(site: Site) -> None:
    someone = site.person("submit", "bo")
    someone.submits("used", "true", "accounted", burst="never")
    page = someone.goes_to("/costs?by=project,user").page
    expect(
        page.get_by_role("table", name="Usage").get_by_role("row").filter(has_text="accounted")
    ).to_be_visible()
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download CSV").click()
    assert downloading.value.suggested_filename == "usage-project-user.csv"
    rows = list(csv.DictReader(io.StringIO(Path(downloading.value.path()).read_text())))
    (row,) = [row for row in rows if row["project"] == "accounted"]
    assert (row["user"], row["jobs"], row["cost_usd"]) == ("bo", "1", "0")


def test_nodes_are_reserved_after_a_look_at_which_and_given_back(site: Site) -> None:
    page = site.person().goes_to("/reservations").page
    expect(page.get_by_text("Nothing is reserved")).to_be_visible()
    page.get_by_role("button", name="Reserve nodes").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("From").fill("soon")
    dialog.get_by_role("textbox", name="Project").fill("physics")
    dialog.get_by_role("button", name="Reserve", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("start")
    dialog.get_by_label("From").fill("+1h")
    dialog.get_by_label("Cluster").fill("onprem")
    dialog.get_by_role("button", name="Which nodes would that be?").click()
    expect(dialog.get_by_text("It would reserve")).to_contain_text("of onprem")
    dialog.get_by_role("button", name="Reserve", exact=True).click()
    row = page.get_by_role("row").filter(has_text="project physics")
    expect(row).to_contain_text("in 59m")
    expect(page.get_by_role("img", name=re.compile("Calendar of reservations: physics"))).to_be_visible()
    row.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the reservation").click()
    expect(page.get_by_text("Nothing is reserved")).to_be_visible()


def test_a_pool_shows_its_machines_and_is_paused(sites: Callable[..., Site]) -> None:
    cloud = {
        "name": "rented",
        "role": "rented",
        "pool": {
            "provider": {"process": {}},
            "offers": [{"type": "small", "cpu": 2, "memory": "2Gi", "hour": 0.1}],
            "max": 2,
        },
    }
    site = sites(clusters=[SETTINGS["clusters"][0], cloud])
    admin = site.person()
    job = admin.submits("rents", "true", burst="always", walltime="1m")
    page = admin.goes_to("/clusters").page
    pool = page.get_by_role("region", name="Pool of rented", exact=True)
    row = pool.get_by_role("row").filter(has_text="small").first
    expect(row).to_contain_text("ready")
    expect(row.get_by_role("link", name=job)).to_be_visible()
    page.locator('[data-key="pool-rented"]').click()
    page.get_by_role("dialog").get_by_label("Why? People whose jobs wait see it.").fill("too dear")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(pool).to_contain_text("Paused: too dear")
    page.locator('[data-key="pool-rented"]').click()
    expect(page.get_by_text("The pool orders machines again")).to_be_visible()
    expect(pool).not_to_contain_text("Paused")
