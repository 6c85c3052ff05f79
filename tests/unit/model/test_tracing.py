"""Identities of traces, as W3C Trace Context writes them."""

import pytest

from spillover.model.ids import JobId
from spillover.model.tracing import is_sampled, read_traceparent, span_of, trace_of

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_context_is_written_as_it_was_read() -> None:
    context = read_traceparent(GIVEN)
    assert context is not None
    assert context.sampled
    assert str(context) == GIVEN


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    context = read_traceparent(f"cc{GIVEN[2:]}-more")
    assert str(context) == GIVEN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-1-2-3",
        GIVEN.upper(),
        f"ff{GIVEN[2:]}",
        f"{GIVEN}-more",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    ],
)
def test_what_the_standard_forbids_is_no_context(text: str) -> None:
    assert read_traceparent(text) is None


def test_identities_follow_from_the_job_alone() -> None:
    one, other = JobId("aaaaaaaaaaaa"), JobId("bbbbbbbbbbbb")
    assert trace_of(one) == trace_of(one) != trace_of(other)
    assert len(trace_of(one)) == 32
    assert len({span_of(one), span_of(other), span_of(one, "attempt 1"), span_of(one, "attempt 2")}) == 4


def test_a_share_of_all_traces_is_sampled() -> None:
    traces = [trace_of(JobId(f"job{number}")) for number in range(4000)]
    assert 0.2 < sum(is_sampled(trace, 0.25) for trace in traces) / len(traces) < 0.3
    assert all(is_sampled(trace, 1.0) for trace in traces)
    assert not any(is_sampled(trace, 0.0) for trace in traces)
