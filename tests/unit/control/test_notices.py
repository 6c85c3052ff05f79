"""What events of the server tell, who gets it, and how it reads as a mail."""

import re
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from spillover.control.notifications.happenings import Happening, of_server, together
from spillover.control.notifications.mails import mail_of, subject_of
from spillover.control.notifications.receivers import messages_of, wanted_by_rules
from spillover.control.notifications.signing import headers, secrets_of
from spillover.core.events import AgentLost, BudgetReached, ClusterChanged, EpochStarted, PoolPaused
from spillover.model.cluster import ClusterHealth
from spillover.model.ids import ClusterName, NodeName
from spillover.model.notifications import Mail, Notifications, Notify, Rule, Webhook, When
from spillover.model.units import MONEY, SECOND
from spillover.wire.notices import Notice, NoticeCluster, NoticeJob, decode_notice

AT = 1_800_000_000 * SECOND
CLOUD = ClusterName("cloud")
SETTINGS = Notifications(
    (Webhook("chat", "https://a.b/", "s", projects=("vision",)),), Mail("s", "spill@example.org")
)


def told(happening: Happening, *rules: Rule, asked: tuple[Notify, ...] = ()) -> list[str]:
    settings = replace(SETTINGS, rules=rules)
    return [each.to for each in messages_of(happening, asked, settings, "EUR")]


def mail(happening: Happening) -> tuple[str, str]:
    """The subject and the text of the mail to one receiver."""
    settings = replace(SETTINGS, rules=(Rule(("ops@example.org",), tuple(When)),))
    (message,) = messages_of(happening, (), settings, "EUR")
    written = mail_of(decode_notice(message.body), "spill@example.org")
    return str(written["Subject"]), written.get_content().replace("\r\n", "\n")


def test_a_budget_tells_its_project_and_those_who_ask_for_all_budgets() -> None:
    event = BudgetReached("project/vision/month/2027-01", AT, 80, 75 * MONEY, 6 * MONEY, 100 * MONEY)
    found = of_server(7, event)
    assert found is not None
    assert (found.kinds, found.project, found.at) == ((When.BUDGET,), "vision", AT)
    mine, others = Rule(("chat",), (When.BUDGET,), ("vision",)), Rule(("a@b.c",), (When.BUDGET,), ("film",))
    everybody = Rule(("ops@b.c",), (When.BUDGET,))
    assert told(found, mine, others, everybody) == ["chat", "ops@b.c"]
    subject, text = mail(found)
    assert subject.startswith("[spill] the budget of project vision of 2027-01 is used to 80 %")
    assert "Spent      75.00 EUR\nHeld       6.00 EUR\nLimit      100.00 EUR\n" in text
    assert "More: spill budgets\n" in text


def test_budgets_of_users_and_pools_belong_to_no_project() -> None:
    for key in ("user/ada/day/2027-01-01", "pool/cloud/ever/ever"):
        found = of_server(7, BudgetReached(key, AT, 100, MONEY, 0, MONEY))
        assert found is not None
        assert found.project == ""
        assert told(found, Rule(("a@b.c",), (When.BUDGET,), ("ada",))) == []
        assert told(found, Rule(("a@b.c",), (When.BUDGET,))) == ["a@b.c"]


def test_clusters_tell_that_they_fail_and_that_they_are_back() -> None:
    found = {
        health: of_server(1, ClusterChanged(CLOUD, AT, health, "no route to host"))
        for health in ClusterHealth
    }
    kinds = {health: each.kinds for health, each in found.items() if each is not None}
    assert kinds == {
        ClusterHealth.DEGRADED: (When.CLUSTER_FAILED,),
        ClusterHealth.FAILED: (When.CLUSTER_FAILED,),
        ClusterHealth.READY: (When.CLUSTER_READY,),
    }
    failed = found[ClusterHealth.FAILED]
    assert failed is not None
    subject, text = mail(failed)
    assert subject == "[spill] cluster cloud is failed: no route to host"
    assert (
        "Cluster    cloud\nState      FAILED\nWhy        no route to host\n\nMore: spill clusters\n" in text
    )


def test_agents_tell_that_they_are_lost_unless_they_left() -> None:
    gone = [of_server(at, AgentLost(CLOUD, NodeName(f"n{at}"), AT + at)) for at in (1, 2, 3)]
    assert of_server(4, AgentLost(CLOUD, NodeName("n4"), AT, left=True)) is None
    other = of_server(5, AgentLost(ClusterName("lab"), NodeName("x"), AT))
    found = together([each for each in (*gone, other) if each is not None])
    assert [each.text for each in found] == ["3 agents of cloud are lost: n1, n2, n3", "agent lab/x is lost"]
    assert (found[0].revision, found[0].at) == (1, AT + 1)
    subject, text = mail(found[0])
    assert subject == "[spill] 3 agents of cloud are lost: n1, n2, n3"
    assert "Agents     n1, n2, n3\n\nMore: spill agents\n" in text


def test_pools_tell_that_they_are_paused_and_other_events_nothing() -> None:
    found = of_server(1, PoolPaused(CLOUD, AT, "spillover", "the provider refused (auth): denied"))
    assert found is not None
    subject, text = mail(found)
    assert subject.startswith("[spill] the pool of cloud was paused by spillover")
    assert "More: spill pools, and spill pools resume cloud\n" in text
    assert of_server(1, EpochStarted(1, AT)) is None


def test_a_mail_of_an_array_counts_its_members_and_says_how_to_run_the_failed_ones_again() -> None:
    job = NoticeJob("a" * 12, "sweep", "ada", "p", "q", "FAILED", members={"FAILED": 12, "SUCCEEDED": 9988})
    notice = Notice("id", "fail", "2027-01-31T10:00:00Z", "array sweep failed", to="a@b.c", job=job)
    text = mail_of(notice, "s@b.c").get_content()
    assert "Members    12 FAILED, 9,988 SUCCEEDED" in text
    assert f"More: spill show {'a' * 12}, and spill rerun --failed {'a' * 12}" in text
    assert "spill logs" not in text
    began = replace(notice, kind="begin", job=replace(job, state="RUNNING"))
    assert subject_of(began) == "[spill] sweep began"
    assert subject_of(replace(notice, kind="requeue")) == "[spill] sweep was requeued"


def test_subjects_and_lines_stay_short() -> None:
    names = [f"n{number}" for number in range(5000)]
    notice = Notice(
        "id",
        "agent_lost",
        "2027-01-31T10:00:00Z",
        "x" * 5000,
        to="a@b.c",
        cluster=NoticeCluster("c", why="y" * 5000, agents=names),
    )
    written = mail_of(notice, "s@b.c")
    assert len(subject_of(notice)) == 150
    assert max(map(len, written.as_bytes().splitlines())) < 998
    assert "and 4950 more" in written.get_content()


def test_a_job_tells_only_whom_it_may_name() -> None:
    job = NoticeJob("a" * 12, "train", "ada", "film", "q", "FAILED")
    found = Happening(3, AT, (When.FAIL, When.END), "job train failed", "film", job)
    asked = (Notify("chat", (When.END,)), Notify("none", (When.END,)), Notify("a@b.c", (When.BEGIN,)))
    assert told(found, asked=asked) == [], "chat is for another project"
    assert told(replace(found, project="vision"), asked=asked) == ["chat"]
    strict = replace(SETTINGS, mail=Mail("s", "a@b.c", domains=("example.org",)))
    both = [Notify("ada@example.org"), Notify("eve@evil.com")]
    assert [each.to for each in messages_of(found, both, strict, "")] == ["ada@example.org"]


def test_events_that_no_rule_asks_for_need_no_look() -> None:
    settings = replace(SETTINGS, rules=(Rule(("chat",), (When.FAIL,)),))
    assert wanted_by_rules(settings, (When.FAIL, When.END))
    assert not wanted_by_rules(settings, (When.BEGIN,))
    assert not wanted_by_rules(SETTINGS, tuple(When))


def test_the_code_on_the_page_tells_our_messages_from_others() -> None:
    page = (Path(__file__).parents[3] / "docs/notifications.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    secret, body, now = b"0123456789abcdef", b'{"version": 1}', int(time.time())
    assert secrets_of(b"whsec_MDEyMzQ1Njc4OWFiY2RlZg==\n") == [secret]
    good = headers([b"another secret!!", secret], "ab12", now, body)
    assert found["is_ours"](secret, good, body)
    assert not found["is_ours"](secret, good, body + b" ")
    assert not found["is_ours"](b"fedcba9876543210", good, body)
    assert not found["is_ours"](secret, headers([secret], "ab12", now - 301, body), body)
