"""Checks the contract of archives, for any store."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.model.ids import JobId, member_id
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.ports.archive import (
    Amounts,
    Finished,
    Query,
    Spent,
    UsageQuery,
    Used,
    spells,
    summed,
)
from spillover.stores.store import Store
from spillover.testing.stores import Opener, a_finished, lead


def _ran(seconds: int, cpu: int = 0) -> dict[str, Any]:
    """Return the fields of a job that ran so long, and used so many CPU seconds and half a GiB."""
    return {"usage": (seconds * SECOND, cpu * SECOND, (512 << 20) if cpu else 0)}


class ArchiveSuite:
    """The contract of `Archive`."""

    @pytest.fixture
    async def store(self, opener: Opener) -> Store:
        """Open a store and take the lead, with epoch 1."""
        store = await opener()
        assert await lead(store) == 1
        return store

    async def test_every_field_comes_back(self, store: Store) -> None:
        """`get` returns None for an unknown job."""
        job = a_finished(key="nightly", why=b"why", array=b"sum", signal=9, not_before=4, exit_code=None)
        job = replace(job, outputs=((1, "list"), (3, "other")))
        bare = a_finished(
            "bbbbbbbbbbbb", 2, started=None, cluster=None, node=None, placed_why=None, deadline=None, body=b""
        )
        await store.archive.put([job, bare], 1)
        assert await store.archive.get(job.job) == job
        assert await store.archive.get(bare.job) == bare
        assert await store.archive.get(JobId("cccccccccccc")) is None
        assert await store.archive.count() == 2

    async def test_many_are_found_at_once_by_their_ids(self, store: Store) -> None:
        """The result includes the return values, and omits unknown jobs."""
        array = JobId("cccccccccccc")
        members = [a_finished(member_id(array, index), 2, value=b"v%d" % index) for index in range(5)]
        await store.archive.put([*members, a_finished(value_digest="ab" * 32)], 1)
        asked = [member_id(array, index) for index in (3, 1, 7)]
        assert await store.archive.some(asked) == {members[3].job: members[3], members[1].job: members[1]}
        (large,) = (await store.archive.some([JobId("aaaaaaaaaaaa")])).values()
        assert (large.value, large.value_digest) == (b"", "ab" * 32)
        assert await store.archive.some([]) == {}

    async def test_putting_again_replaces(self, store: Store) -> None:
        """A server archives jobs again after a crash."""
        await store.archive.put([a_finished()], 1)
        await store.archive.put([a_finished(state="FAILED", name="other")], 1)
        assert await store.archive.count() == 1
        assert [job.state for job in await store.archive.list(Query(name="other"))] == ["FAILED"]
        assert await store.archive.list(Query(name="train")) == []

    async def test_lists_are_newest_first_and_go_on_after_a_cursor(self, store: Store) -> None:
        """Pages neither skip nor repeat a job, even among equal numbers."""
        jobs = [a_finished(f"{letter}aaaaaaaaaaa", number // 2) for number, letter in enumerate("hgfedcba")]
        await store.archive.put(jobs, 1)
        expected = sorted(jobs, key=lambda job: (-job.number, job.job))
        seen: list[Finished] = []
        before = None
        while page := await store.archive.list(Query(limit=3, before=before)):
            seen += page
            before = (page[-1].number, page[-1].job)
        assert seen == expected

    async def test_members_are_listed_by_their_index(self, store: Store) -> None:
        """They follow their array, also across pages."""
        array = JobId("cccccccccccc")
        members = [a_finished(member_id(array, index), 2) for index in (10, 2, 9, 11, 1)]
        await store.archive.put([*members, a_finished(array, 2), a_finished("aaaaaaaaaaaa", 1)], 1)
        seen: list[str] = []
        before = None
        while page := await store.archive.list(Query(limit=2, before=before, members=True)):
            seen += [job.job for job in page]
            before = (page[-1].number, page[-1].job)
        assert seen == [array, *(f"{array}.{index}" for index in (1, 2, 9, 10, 11)), "aaaaaaaaaaaa"]

    async def test_lists_are_filtered(self, store: Store) -> None:
        """By each field, and by all together."""
        jobs = [
            a_finished("aaaaaaaaaaaa", 1, state="FAILED"),
            a_finished("bbbbbbbbbbbb", 2, project="speech"),
            a_finished("cccccccccccc", 3, user="bob"),
            a_finished("dddddddddddd", 4, name="test"),
            a_finished("eeeeeeeeeeee", 5, state="FAILED", project="speech", user="bob", name="test"),
            a_finished("ffffffffffff", 6, queue="gpu"),
        ]
        await store.archive.put(jobs, 1)

        async def numbers(query: Query) -> list[int]:
            return [job.number for job in await store.archive.list(query)]

        assert await numbers(Query()) == [6, 5, 4, 3, 2, 1]
        assert await numbers(Query(state="FAILED")) == [5, 1]
        assert await numbers(Query(project="speech")) == [5, 2]
        assert await numbers(Query(user="bob")) == [5, 3]
        assert await numbers(Query(name="test")) == [5, 4]
        assert await numbers(Query(queue="gpu")) == [6]
        assert await numbers(Query(number=4)) == [4]
        assert await numbers(Query(number=4, before=(4, "dddddddddddd"))) == []
        assert await numbers(Query(since=1_003)) == [6, 5, 4, 3]
        assert await numbers(Query(until=1_003)) == [2, 1]
        assert await numbers(Query(since=1_002, until=1_005)) == [4, 3, 2]
        assert await numbers(Query(until=1_005, ended_since=3_003)) == [4, 3]
        assert await numbers(Query(since=1_003, before=(4, "dddddddddddd"))) == [3]
        everything = Query(state="FAILED", project="speech", user="bob", name="test", since=1, before=(6, ""))
        assert await numbers(everything) == [5]
        assert await numbers(Query(state="CANCELLED")) == []

    async def test_members_are_listed_only_when_asked_for(self, store: Store) -> None:
        """An array of a million members would hide everything else."""
        array = JobId("aaaaaaaaaaaa")
        members = [a_finished(member_id(array, index), 1) for index in (1, 2, 10)]
        await store.archive.put([*members, a_finished(array, 1), a_finished("aaaaaaaaaaab", 2)], 1)
        assert [job.job for job in await store.archive.list(Query())] == ["aaaaaaaaaaab", "aaaaaaaaaaaa"]
        listed = [job.job for job in await store.archive.list(Query(members=True))]
        assert listed == [
            "aaaaaaaaaaab",
            "aaaaaaaaaaaa",
            "aaaaaaaaaaaa.1",
            "aaaaaaaaaaaa.2",
            "aaaaaaaaaaaa.10",
        ]
        assert await store.archive.get(member_id(array, 2)) == members[1]

    async def test_what_no_store_can_hold_is_not_found(self, store: Store) -> None:
        """Somebody may ask for anything."""
        odd = JobId("a\0b")
        assert await store.archive.get(odd) is None
        assert await store.archive.some([odd]) == {}
        assert await store.archive.find(odd, 1) == []
        assert await store.archive.keyed([("a", odd)]) == {}
        assert await store.archive.list(Query(name=odd)) == []

    async def test_ids_are_found_by_their_beginning(self, store: Store) -> None:
        """A prefix matches members only with the dot; wildcards of SQL have no meaning."""
        array = JobId("abcaaaaaaaaa")
        await store.archive.put(
            [
                a_finished(array, 1),
                a_finished(member_id(array, 1), 1),
                a_finished(member_id(array, 12), 1),
                a_finished("abdaaaaaaaaa", 3),
                a_finished("xbcaaaaaaaaa", 2),
            ],
            1,
        )
        find = store.archive.find
        assert await find("ab", 10) == ["abdaaaaaaaaa", "abcaaaaaaaaa"]
        assert await find("ab", 1) == ["abdaaaaaaaaa"]
        assert await find("abc", 10) == ["abcaaaaaaaaa"]
        assert await find("abcaaaaaaaaa", 10) == ["abcaaaaaaaaa"]
        assert await find("abcaaaaaaaaa.1", 10) == ["abcaaaaaaaaa.1", "abcaaaaaaaaa.12"]
        assert await find("", 10) == ["abdaaaaaaaaa", "xbcaaaaaaaaa", "abcaaaaaaaaa"]
        for nothing in ("q", "a%", "_bc", "abc'", "ä", "AB"):
            assert await find(nothing, 10) == []

    async def test_jobs_are_found_by_key(self, store: Store) -> None:
        """Each project has its own keys; the newest job with a key counts."""
        old, new, other, elsewhere = (
            a_finished("aaaaaaaaaaaa", 1, key="k"),
            a_finished("bbbbbbbbbbbb", 2, key="k"),
            a_finished("cccccccccccc", 3, key="other"),
            a_finished("eeeeeeeeeeee", 5, key="k", project="speech"),
        )
        await store.archive.put([new, old, other, elsewhere, a_finished("dddddddddddd", 4)], 1)
        wanted = [("vision", "k"), ("vision", "other"), ("vision", "none"), ("speech", "other")]
        assert await store.archive.keyed(wanted) == {("vision", "k"): new, ("vision", "other"): other}
        assert await store.archive.keyed([("speech", "k")]) == {("speech", "k"): elsewhere}
        assert await store.archive.keyed([]) == {}

    async def test_costs_are_summed_by_project_user_cluster_and_day(self, store: Store) -> None:
        """Each attempt counts where it ran and on the day it ended; arrays count through their members."""
        array = JobId("cccccccccccc")
        free = a_finished("eeeeeeeeeeee", 5, cost=0)
        jobs = [
            a_finished(
                "aaaaaaaaaaaa", 1, cost=5, cluster="cloud", finished=DAY, paid=((DAY - 1, "spot", 2),)
            ),
            a_finished("bbbbbbbbbbbb", 2, cost=7, cluster="cloud", finished=3 * DAY, user="bob"),
            a_finished(array, 3, cost=11, cluster=None, finished=4 * DAY, array=b"sum"),
            a_finished(member_id(array, 1), 3, cost=11, cluster="spot", finished=4 * DAY, project="speech"),
            a_finished("dddddddddddd", 4, cost=3, cluster=None, finished=5 * DAY, paid=((1, "spot", 3),)),
            free,
        ]
        await store.archive.put(jobs, 1)
        await store.archive.put(jobs[:1], 1)
        costs = store.archive.costs
        assert await costs("project", None, []) == [Spent("speech", 11, 1), Spent("vision", 15, 3)]
        assert await costs("user", None, []) == [Spent("ada", 19, 3), Spent("bob", 7, 1)]
        assert await costs("cluster", None, []) == [Spent("cloud", 10, 2), Spent("spot", 16, 3)]
        assert await costs("day", None, []) == [
            Spent("1970-01-01", 5, 2),
            Spent("1970-01-02", 3, 1),
            Spent("1970-01-04", 7, 1),
            Spent("1970-01-05", 11, 1),
        ]
        assert await costs("week", None, []) == [Spent("1970-W01", 15, 3), Spent("1970-W02", 11, 1)]
        assert await costs("month", None, []) == [Spent("1970-01", 26, 4)]
        assert await costs("user", DAY, ["bbbbbbbbbbbb", "none"]) == [Spent("ada", 14, 2)]
        assert await costs("cluster", 9 * DAY, []) == []
        assert await store.archive.get(jobs[0].job) == jobs[0]

    async def test_usage_is_summed_by_several_keys_and_by_cluster(self, store: Store) -> None:
        """Each attempt counts where it ran and when it ended; a job counts once, for its last attempt."""
        array = JobId("cccccccccccc")
        shape = Shape(Resources(2000, 1 << 30, 1), tasks=2)
        jobs = [
            a_finished("aaaaaaaaaaaa", 1, **_ran(10, cpu=8), cost=9, shape=shape, finished=DAY),
            a_finished("bbbbbbbbbbbb", 2, **_ran(5), cost=7, cluster="cloud", user="bob", queue="gpu"),
            a_finished(array, 3, cost=11, cluster=None, array=b"sum"),
            a_finished(member_id(array, 1), 3, **_ran(1), cost=0, user="bob"),
            a_finished("dddddddddddd", 4, cluster=None, started=None, cost=0),
        ]
        tried = ((DAY - 1, "cloud", 4 * SECOND, 2),)
        jobs[0] = replace(jobs[0], tried=tried, paid=((DAY - 1, "cloud", 2),))
        await store.archive.put(jobs, 1)
        await store.archive.put(jobs[:1], 1)

        def told(used: Sequence[Used]) -> list[tuple[object, ...]]:
            return [(*each.keys, each.cluster, each.jobs, each.amounts.cpu, each.cost) for each in used]

        usage = store.archive.usage
        assert told(await usage(UsageQuery(("user",)))) == [
            ("ada", "cloud", 0, 16_000, 2),
            ("ada", "onprem", 1, 40_000, 7),
            ("bob", "cloud", 1, 7_500, 7),
            ("bob", "onprem", 1, 1_500, 0),
        ]
        assert told(await usage(UsageQuery(("queue", "day"), since=DAY - 1))) == [
            ("default", "1970-01-01", "cloud", 0, 16_000, 2),
            ("default", "1970-01-02", "onprem", 1, 40_000, 7),
        ]
        assert told(await usage(UsageQuery(without=["aaaaaaaaaaaa"], project="vision"))) == [
            ("cloud", 1, 7_500, 7),
            ("onprem", 1, 1_500, 0),
        ]
        assert told(await usage(UsageQuery(array=array))) == [("onprem", 1, 1_500, 0)]
        assert await usage(UsageQuery(project="none")) == []
        (all_of,) = [
            each for each in await usage(UsageQuery(("user",))) if each.keys == ("ada",) and each.jobs
        ]
        assert all_of.amounts == Amounts(40_000, 20_000, 20_480, 40_000, 32_000, 20_480, 10_240)
        assert all_of.peak == 512 << 20
        assert await usage(UsageQuery(("month",))) == summed(
            ("month",), [spell for job in jobs for spell in spells(job)]
        )
        assert await store.archive.forget(10 * DAY, 1) == len(jobs)
        assert await usage(UsageQuery()) == []

    async def test_weeks_and_months_are_those_of_the_utc_calendar(self, store: Store) -> None:
        """Tests the first and the last day of each, and a change of year."""
        times = {
            "2026-12-28": 20_815,
            "2026-12-31": 20_818,
            "2027-01-03": 20_821,
            "2027-01-04": 20_822,
            "2028-02-29": 21_243,
        }
        jobs = [
            a_finished(
                f"{number:012d}", number, cost=1, finished=day * DAY + (0 if number in {0, 3} else DAY - 1)
            )
            for number, day in enumerate(times.values())
        ]
        await store.archive.put(jobs, 1)
        told = {by: await store.archive.costs(by, None, []) for by in ("day", "week", "month")}
        assert [spent.key for spent in told["day"]] == list(times)
        assert told["week"] == [Spent("2026-W53", 3, 3), Spent("2027-W01", 1, 1), Spent("2028-W09", 1, 1)]
        assert told["month"] == [Spent("2026-12", 2, 2), Spent("2027-01", 2, 2), Spent("2028-02", 1, 1)]

    async def test_jobs_and_costs_of_one_project_are_found_alone(self, store: Store) -> None:
        """For users who may not see other projects."""
        await store.archive.put(
            [
                a_finished("abcaaaaaaaaa", 1, cost=5, cluster="cloud"),
                a_finished("abdaaaaaaaaa", 2, cost=7, cluster="cloud", project="speech"),
            ],
            1,
        )
        assert await store.archive.find("ab", 10, "speech") == ["abdaaaaaaaaa"]
        assert await store.archive.find("abc", 10, "speech") == []
        assert await store.archive.find("ab", 10, None) == ["abdaaaaaaaaa", "abcaaaaaaaaa"]
        assert await store.archive.costs("cluster", None, [], "speech") == [Spent("cloud", 7, 1)]
        assert await store.archive.costs("project", None, [], "nobody") == []
        assert await store.archive.costs("user", None, ["abdaaaaaaaaa"], "speech") == []

    async def test_costs_are_forgotten_with_their_jobs(self, store: Store) -> None:
        """So that costs and the list of jobs agree."""
        await store.archive.put([a_finished(cost=5), a_finished("bbbbbbbbbbbb", 2, cost=7)], 1)
        assert await store.archive.forget(3_002, 1) == 1
        assert await store.archive.costs("user", None, []) == [Spent("ada", 7, 1)]

    async def test_jobs_whose_files_are_needed_stay_with_their_members(self, store: Store) -> None:
        """An array and its members share a number."""
        array, member = a_finished("aaaaaaaaaaaa", 1), a_finished("aaaaaaaaaaaa.7", 1)
        await store.archive.put([array, member, a_finished("bbbbbbbbbbbb", 2)], 1)
        assert await store.archive.forget(10 * DAY, 1, {1, 99}) == 1
        assert set(await store.archive.some([array.job, member.job])) == {array.job, member.job}
        assert await store.archive.forget(10 * DAY, 1) == 2

    async def test_any_number_of_jobs_is_forgotten(self, store: Store) -> None:
        """Even if that takes more than one step."""
        jobs = [a_finished(f"{number:012d}", number, finished=number) for number in range(4_500)]
        await store.archive.put(jobs, 1)
        assert await store.archive.forget(4_300, 1) == 4_300
        assert await store.archive.count() == 200

    async def test_jobs_are_forgotten_by_when_they_finished(self, store: Store) -> None:
        """Before a time, not at it."""
        jobs = [a_finished(f"{letter}aaaaaaaaaaa", number) for number, letter in enumerate("abcd")]
        await store.archive.put(jobs, 1)
        assert await store.archive.forget(3_002, 1) == 2
        assert await store.archive.forget(3_002, 1) == 0
        assert [job.number for job in await store.archive.list(Query())] == [3, 2]
