"""People submit jobs, follow their output, see why they wait, and change them."""

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import Site

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=document.title='taken'>"


def test_somebody_submits_a_job_with_the_form_and_follows_its_output(site: Site) -> None:
    page = site.person("submit", "bo").goes_to("/submit").page
    page.get_by_label("What to run").fill(
        "for i in 1 2 3; do echo step $i; done; until test -e /tmp/spill-page-go-$SPILL_JOB_ID; do sleep 0.05; done; echo the end"
    )
    page.get_by_label("Name", exact=True).fill("followed")
    page.get_by_label("CPUs").fill("two")
    expect(page.get_by_role("button", name=re.compile("line 8.*is not a number of CPUs"))).to_be_visible()
    submit = page.get_by_role("button", name="Submit", exact=True)
    expect(submit).to_be_disabled()
    page.get_by_label("CPUs").fill("1")
    expect(page.get_by_text("No problems found.")).to_be_visible()
    expect(page.get_by_text("at once on")).to_be_visible()
    submit.click()
    expect(page.get_by_role("heading", name="followed")).to_be_visible()
    expect(page.get_by_text("running", exact=True).first).to_be_visible()
    page.get_by_role("tab", name="Output").click()
    output = page.get_by_role("log", name="Output")
    expect(output).to_contain_text("step 3")
    expect(output).not_to_contain_text("the end")
    job = page.url.partition("/jobs/")[2].partition("#")[0]
    made = site.server.spill("run", "--wait", "--", "touch", f"/tmp/spill-page-go-{job}")
    assert made.returncode == 0, made.stderr
    expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    page.get_by_role("tab", name="Output").click()
    expect(output).to_contain_text("the end of the output of this attempt")
    expect(output.get_by_text("the end", exact=True)).to_be_visible()


def test_the_editor_says_what_is_wrong_and_where_as_one_types(site: Site) -> None:
    page = site.person("submit", "bo").goes_to("/submit").page
    page.get_by_role("button", name="Editor").click()
    editor = page.get_by_role("textbox", name="Job file")
    editor.fill("apiVersion: spillover/v1\nkind: Job\nspec:\n  run: true\n  walltme: 2h\n")
    problem = page.get_by_role("button", name=re.compile("line 5"))
    expect(problem).to_contain_text("walltime")
    problem.click()
    assert page.evaluate("document.activeElement.selectionStart") == len(
        "apiVersion: spillover/v1\nkind: Job\nspec:\n  run: true\n"
    )
    editor.fill('apiVersion: spillover/v1\nkind: Job\nspec:\n  run: "true"\n  workdir: /tmp\n')
    expect(page.get_by_text("Dry run")).to_be_visible()


def test_a_job_is_submitted_again_with_changes(site: Site) -> None:
    someone = site.person("submit", "bo")
    job = someone.submits(
        "first", "echo 'a: b' # c\necho second line", env={"A": "yes", "B": "1.5"}, hold=True
    )
    page = someone.goes_to(f"/jobs/{job}").page
    page.get_by_role("tab", name="Job file").click()
    expect(page.get_by_label("Job file", exact=True).last).to_contain_text("echo second line")
    page.get_by_role("link", name="Submit again with changes").click()
    editor = page.get_by_role("textbox", name="Job file")
    expect(editor).to_have_value(re.compile("echo second line"))
    editor.fill(editor.input_value().replace("name: first", "name: changed"))
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("heading", name="changed")).to_be_visible()
    again = someone.asks("GET", "/v1/jobs/changed")["spec"]
    assert again["spec"]["run"] == "echo 'a: b' # c\necho second line"
    assert again["spec"]["env"] == {"A": "yes", "B": "1.5"}
    someone.asks("POST", "/v1/actions", {"act": "cancel", "jobs": [job, "changed"]})


def test_somebody_sees_why_a_job_waits_and_what_would_let_it_start(site: Site) -> None:
    someone = site.person("submit", "bo")
    jobs = [
        someone.submits(f"big-{at}", "sleep 300", resources={"cpu": at}, walltime="10m", burst="never")
        for at in (2, 1)
    ]
    waits = someone.submits("waits", "true", resources={"cpu": 2}, walltime="1m", burst="never")
    page = someone.goes_to(f"/jobs/{waits}").page
    expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()
    why = page.get_by_label("Why", exact=True)
    expect(why).to_contain_text("waits for 2 CPU on one machine of onprem")
    expect(why).to_contain_text("`burst: never`")
    page.get_by_label("More machines").fill("1")
    page.get_by_role("button", name="Try").click()
    expect(page.locator(".note.good")).to_contain_text("would start")
    found = page.get_by_label("What would let it start now", exact=True).last
    less = found.get_by_role("row").filter(has_text="With 1 CPU instead of 2")
    expect(less).to_contain_text("onprem")
    less.get_by_role("button", name="Change it").click()
    page.get_by_role("dialog").get_by_role("button", name="Change it").click()
    expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    someone.asks("POST", "/v1/actions", {"act": "cancel", "jobs": jobs, "states": ["RUNNING", "PLACED"]})


def test_filters_are_in_the_address_and_actions_say_how_many_jobs_they_concern(site: Site) -> None:
    someone = site.person("submit", "bo")
    jobs = [someone.submits("several", "true", "lists", hold=True) for _ in range(3)]
    page = someone.goes_to("/jobs").page
    page.get_by_label("Project").fill("lists")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/jobs\?project=lists$"))
    expect(page.get_by_role("link", name="several")).to_have_count(3)
    page.get_by_label("State").select_option("HELD")
    expect(page).to_have_url(re.compile(r"state=HELD&project=lists"))
    page.reload()
    expect(page.get_by_role("link", name="several")).to_have_count(3)
    page.get_by_role("checkbox", name="Choose all jobs of this page").check()
    chosen = page.get_by_role("region", name="Chosen jobs")
    expect(chosen).to_contain_text("3 jobs chosen")
    page.locator(f'[data-key="pick-{jobs[0]}"]').uncheck()
    chosen.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 jobs will be cancelled")
    dialog.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_role("link", name="several")).to_have_count(1)
    page.get_by_label("State").select_option("CANCELLED")
    expect(page.get_by_role("link", name="several")).to_have_count(2)
    page.go_back()
    expect(page.get_by_role("link", name="several")).to_have_count(1)
    someone.asks("POST", "/v1/actions", {"act": "cancel", "jobs": jobs[:1]})


def test_an_array_is_one_row_with_a_bar_of_its_members(site: Site) -> None:
    someone = site.person("submit", "bo")
    job = someone.submits(
        "many", "test $SPILL_ARRAY_INDEX != 2", array="0-4", resources={"cpu": 1}, walltime="1m"
    )
    page = someone.goes_to("/jobs?name=many").page
    expect(page.get_by_role("img", name="4 succeeded, 1 failed")).to_be_visible()
    expect(page.get_by_role("link", name="many")).to_have_count(1)
    page.get_by_role("link", name="many").click()
    expect(page.get_by_text("4 of 5 members succeeded, 1 failed")).to_be_visible()
    page.get_by_role("tab", name="Members").click()
    expect(page.get_by_role("table", name="Members").get_by_role("row")).to_have_count(6)
    page.get_by_role("table", name="Members").get_by_role("link", name="2", exact=True).click()
    expect(page).to_have_url(re.compile(rf"/jobs/{job}\.2"))
    expect(page.get_by_text("exited with code 1").first).to_be_visible()


def test_pages_of_the_list_are_read_one_at_a_time(sites: Callable[..., Site]) -> None:
    site = sites()
    someone = site.person("submit", "bo")
    one = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": "one"},
        "spec": {"run": "true", "workdir": "/tmp", "hold": True},
    }
    someone.asks("POST", "/v1/jobs", {"jobs": [one] * 250})
    page = someone.goes_to("/jobs").page
    rows = page.get_by_role("table", name="Jobs").locator("tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("link", name="Older jobs").click()
    expect(page).to_have_url(re.compile("cursor="))
    expect(rows).to_have_count(100)
    page.get_by_role("link", name="Older jobs").click()
    expect(rows).to_have_count(50)
    expect(page.get_by_text("These are the oldest.")).to_be_visible()
    page.get_by_role("link", name="Newest").click()
    expect(rows).to_have_count(100)


def test_hostile_texts_are_shown_as_they_are(site: Site) -> None:
    someone = site.person()
    command = f"printf '%s\\n' \"{HOSTILE.replace(chr(39), chr(96)).replace('`', '')}\"; printf 'a\\000b\\007\\033]0;title\\007c\\n'; printf 'x\\342\\200\\256live\\n'"
    job = someone.submits("hostile", command, env={"TEXT": HOSTILE})
    page = someone.goes_to(f"/jobs/{job}#output").page
    output = page.get_by_role("log", name="Output")
    expect(output).to_contain_text("<script>document.title=taken</script>")
    expect(output).to_contain_text("a\u2400b\u2407c")
    expect(output).to_contain_text("x\ufffdlive")
    page.get_by_role("tab", name="Job file").click()
    expect(page.locator("pre.code-block")).to_contain_text("<script>document.title='taken'</script>")
    someone.asks(
        "POST", "/v1/agents/actions", {"act": "drain", "agents": ["onprem/n2"], "reason": HOSTILE + "\u202e"}
    )
    someone.goes_to("/clusters")
    expect(page.get_by_role("row").filter(has_text="n2").first).to_contain_text("by ada: <script>")
    assert page.title() == "Clusters · Spillover"
    assert page.locator("script").count() == page.locator("head script").count()
    assert page.locator("main img").count() == 0
    someone.asks("POST", "/v1/agents/actions", {"act": "resume", "agents": ["onprem/n2"]})


def test_a_megabyte_in_one_line_and_a_million_lines_keep_the_page_small(site: Site) -> None:
    someone = site.person()
    job = someone.submits(
        "long",
        "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo after; seq 200000; echo last",
        walltime="5m",
    )
    page = someone.goes_to(f"/jobs/{job}#output").page
    output = page.get_by_role("log", name="Output")
    expect(output).to_contain_text("the end of the output of this attempt", timeout=60_000)
    expect(output.get_by_text("last", exact=True)).to_be_visible()
    assert output.locator("div").count() <= 5000
    page.get_by_role("searchbox", name="Find in the output").fill("199999")
    expect(page.get_by_text("1 of 1 line")).to_be_visible()
    line = someone.submits("wide", "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo after")
    someone.goes_to(f"/jobs/{line}#output")
    expect(output).to_contain_text("992,000 more characters in this line are not shown")
    expect(output.get_by_text("after", exact=True)).to_be_visible()
