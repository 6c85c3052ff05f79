"""Traces in each format: what is read, exactly, and what is told of rows that are wrong."""

import gzip
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.forms.problems import BadForm
from spillover.model.topology import Topology
from spillover.model.units import DAY, HOUR, MINUTE, SECOND, parse_time
from spillover.sim.trace import Happened, Trace, TraceJob
from spillover.sim.traces.opening import read_trace
from spillover.sim.traces.rows import MOST, times

TRACES = Path(__file__).parents[4] / "shared" / "traces"


def read(folder: Path, text: str | bytes, name: str = "t.csv", *, skip: bool = False) -> Trace:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(str(path), skip_bad=skip)


def refused(folder: Path, text: str | bytes, name: str = "t.csv") -> list[str]:
    with pytest.raises(BadForm) as error:
        read(folder, text, name)
    return [line.removeprefix(f"{folder}/") for line in str(error.value).splitlines()]


def test_every_column_of_a_table_is_read(tmp_path: Path) -> None:
    text = (
        "queue,id,submit_s,runtime_s,gpus,cpus,nodes,memory_mb,user,project,req_walltime_s\n"
        "q,a,1.5,60,4,2.5,2,512,ann,vision,3600\n"
        "q,b,0,1e2,,1,,,,,\n"
    )
    first, second = read(tmp_path, text).jobs
    assert first == TraceJob("b", 0, 100 * SECOND, 0, 1000)
    assert second == TraceJob("a", SECOND * 3 // 2, MINUTE, 4, 2500, 2, 512 * 2**20, "ann", "vision", HOUR)


def test_columns_say_where_the_tasks_of_a_job_must_be(tmp_path: Path) -> None:
    text = (
        "id,submit_s,runtime_s,cpus,nodes,within,spread,exclusive,pin,gpu_link\n"
        "a,0,1,8,2,rack,node,node,socket,nvlink\n"
        "b,0,1,8,2,prefer:rack,,,,\n"
        "c,0,1,8,2,,,,,\n"
    )
    first, second, third = read(tmp_path, text).jobs
    assert first.topology == Topology(
        within="rack", spread="node", exclusive=True, pin="socket", link="nvlink"
    )
    assert second.topology == Topology(within="rack", preferred=True)
    assert third.topology is None


def test_what_is_wrong_with_a_place_is_told_by_column(tmp_path: Path) -> None:
    text = "submit_s,runtime_s,cpus,within,exclusive,pin\n0,1,1,a rack,yes,thread\n0,1,x,,,socket\n"
    within, exclusive, pin, cpus, *_ = refused(tmp_path, text)
    assert within.startswith("t.csv:2: within: 'a rack' is not a name: ")
    assert exclusive == "t.csv:2: exclusive: 'yes' is not valid; write node, or leave it blank"
    assert pin == "t.csv:2: pin: 'thread' is not valid; write core, numa, socket, or leave it blank"
    assert cpus.startswith("t.csv:3: cpus: ")


def test_times_are_exact_and_rows_are_sorted_with_ties_as_they_came(tmp_path: Path) -> None:
    text = "submit_h,runtime_h,gpus\n0.12531152515480382,0.7785507313311778,4\n0,1.0000000000001,1\n0.0,2,2\n"
    jobs = read(tmp_path, text).jobs
    assert [(job.id, job.submit, job.runtime) for job in jobs] == [
        ("1", 0, HOUR),
        ("2", 0, 2 * HOUR),
        ("0", 451_121_490_557, 2_802_782_632_792),
    ]


@given(st.decimals(min_value=0, max_value=10**6, allow_nan=False, places=17) | st.floats(0, 1e6).map(Decimal))
def test_a_time_is_the_nearest_nanosecond_of_what_is_written(value: Decimal) -> None:
    for text in (f"{value:f}"[:39], str(value)[:39]):
        try:
            exact = Decimal(text) * HOUR
        except ArithmeticError:
            continue
        assert abs(times(HOUR)(text) - exact) <= Decimal("0.5")


def test_processors_count_only_when_gpus_and_cpus_are_blank(tmp_path: Path) -> None:
    text = "submit_s,runtime_s,nodes_or_procs,gpus,cpus\n0,1,8,2,\n0,1,8,,4\n0,1,8,,\n0,1,8,0,16\n"
    jobs = read(tmp_path, text).jobs
    assert [(job.gpus, job.cpus) for job in jobs] == [(2, 0), (0, 4000), (0, 8000), (0, 16_000)]


def test_a_limit_of_nothing_is_none(tmp_path: Path) -> None:
    jobs = read(tmp_path, "submit_s,runtime_s,gpus,req_walltime_s\n0,1,1,0\n1,1,1,\n2,1,1,5\n").jobs
    assert [job.walltime for job in jobs] == [None, None, 5 * SECOND]


def test_whole_nodes_are_enough(tmp_path: Path) -> None:
    (job,) = read(tmp_path, "submit_s,runtime_s,nodes\n0,1,3\n").jobs
    assert (job.nodes, job.gpus, job.cpus) == (3, 0, 0)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_packed_and_marked_and_quoted_tables_are_read(tmp_path: Path, newline: str) -> None:
    text = newline.join(["\ufeffSubmit_S, runtime_s ,gpus,user", '0,1,1,"a, b"', "", "1,1,1,c", ""])
    packed = gzip.compress(text[:30].encode()) + gzip.compress(text[30:].encode()) + b"\0\0"
    for data in (text.encode(), packed):
        assert [job.user for job in read(tmp_path, data).jobs] == ["a, b", "c"]


def test_every_wrong_row_is_told_with_its_line_and_all_that_is_wrong(tmp_path: Path) -> None:
    text = (
        "submit_s,runtime_s,gpus,cpus,memory_mb,req_walltime_s,nodes\n"
        "0,1,1,,,,\n"
        "x,-1,1.5,y,z,w,v\n"
        "0,1,1\n"
        "0,,1,,,,\n"
        "0,1,0,0,,,\n"
        "1e99999,nan,-1,9e99,inf,1_0,\n"
    )
    assert refused(tmp_path, text) == [
        "t.csv:3: submit_s: 'x' is not a number",
        "t.csv:3: runtime_s: '-1' is less than 0",
        "t.csv:3: gpus: '1.5' is not a whole number",
        "t.csv:3: cpus: 'y' is not a number",
        "t.csv:3: nodes: 'v' is not a number",
        "t.csv:3: memory_mb: 'z' is not a number",
        "t.csv:3: req_walltime_s: 'w' is not a number",
        "t.csv:4: has 3 columns; the header has 7",
        "t.csv:5: runtime_s: is missing",
        "t.csv:6: asks for no resources; set gpus, cpus or nodes",
        "t.csv:7: submit_s: '1e99999' is more than a million days",
        "t.csv:7: runtime_s: 'nan' is not a number",
        "t.csv:7: gpus: '-1' is not a number from 0 to 1000000000",
        "t.csv:7: cpus: '9e99' is not a number from 0 to 1000000000",
        "t.csv:7: memory_mb: 'inf' is not a number",
        "t.csv:7: req_walltime_s: '1_0' is not a number",
        "t.csv: nothing was simulated; use --skip-bad to skip such rows",
    ]
    trace = read(tmp_path, text, skip=True)
    assert len(trace.jobs) == 1
    assert trace.left_out == 5


def test_many_wrong_rows_are_counted(tmp_path: Path) -> None:
    told = refused(tmp_path, "submit_s,runtime_s,gpus\n" + "x,1,1\n" * 1000)
    assert len(told) == 22
    assert told[-1] == "and 980 more problems"


def test_a_row_that_no_table_has_does_not_end_the_others(tmp_path: Path) -> None:
    text = "submit_s,runtime_s,gpus,user\n0,1,1,a\n0,1,1,{}\n2,1,1,c\n".format("x" * 200_000)
    assert refused(tmp_path, text)[0] == "t.csv:3: field larger than field limit (131072)"
    assert [job.id for job in read(tmp_path, text, skip=True).jobs] == ["0", "2"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "t.csv: is empty"),
        ("\n\n", "t.csv: is empty"),
        (
            "runtime_s,gpus\n",
            "t.csv: the header must have exactly one of submit_s and submit_h; it has neither",
        ),
        (
            "submit_s,runtime_s,runtime_h,gpus\n",
            "t.csv: the header must have exactly one of runtime_s and runtime_h; it has both",
        ),
        ("submit_s,runtime_s\n0,1\n", "t.csv: no column has the size of jobs"),
        ("submit_s,runtime_s,gpus\n", "t.csv: has no jobs that ran"),
        (b"submit_s,runtime_s,gpus\n0,1,\xff\n", "t.csv: line 2 is not UTF-8 text"),
        (gzip.compress(b"submit_s,runtime_s,gpus\n0,1,1\n", mtime=0)[:-4], "t.csv: is truncated"),
        (b"\x1f\x8bnot packed at all", "t.csv: cannot be decompressed"),
        ("a|b\n1|2\n", "t.csv: the first line is not a header of sacct"),
        (
            "12|ann|2024-03-01T10:00:00|cpu=32,mem=2G,node=2|8\n",
            "t.csv: the first line is not a header of sacct, as it has no JobID; create it with sacct --parsable2 --allusers -o JobID,",
        ),
    ],
)
def test_what_is_no_trace_is_told(tmp_path: Path, text: str | bytes, problem: str) -> None:
    (line,) = refused(tmp_path, text)
    assert line.startswith(problem)


SWF = """\
; Computer: a machine
; UnixStartTime: 1000
;
1 0 10 100 4 -1 -1 8 3600 1024 1 7 3 -1 1 -1 -1 -1
2 5 -1 50.5 -1 -1 -1 2 -1 -1 0 -1 -1 -1 1 -1 -1 -1

3 6 -1 -1 -1 -1 -1 2 -1 -1 5 -1 -1 -1 1 -1 -1 -1
4 7 0 10 4 -1 -1 4 -1 -1 2 1 1 -1 1 -1 -1 -1
5 3 0 0 1 -1 -1 1 0 -1 1 1 1 -1 1 -1 -1 -1
"""


@pytest.mark.parametrize("name", ["log.swf", "log.SWF.gz", "log.txt"])
def test_the_standard_workload_format_is_read(tmp_path: Path, name: str) -> None:
    trace = read(tmp_path, gzip.compress(SWF.encode()) if name.endswith("gz") else SWF, name)
    assert trace.jobs == (
        TraceJob("1", 0, 100 * SECOND, 0, 4000, 0, 4 * 2**20, "7", "3", HOUR),
        TraceJob("5", 3 * SECOND, 0, 0, 1000, 0, 0, "1", "1", None),
        TraceJob("2", 5 * SECOND, 50_500_000_000, 0, 2000, 0, 0, "", "", None),
    )
    assert trace.happened == (
        Happened(10 * SECOND, 110 * SECOND, "COMPLETED"),
        Happened(3 * SECOND, 3 * SECOND, "COMPLETED"),
        None,
    )
    assert trace.zero == 1000 * SECOND
    assert trace.not_jobs == 2


def test_wrong_lines_of_a_log_are_told(tmp_path: Path) -> None:
    text = SWF + "6 1 2 3\n7 x 0 10 4 -1 -1 4 -1 -1 1 1 1 -1 1 -1 -1 -1\n"
    assert refused(tmp_path, text, "log.swf")[:2] == [
        "log.swf:10: has 4 fields; a line must have 18",
        "log.swf:11: 'x' is not a number",
    ]
    assert read(tmp_path, text, "log.swf", skip=True).left_out == 2


SACCT = """\
JobID|User|Account|Submit|Start|End|State|AllocCPUS|AllocTRES|ReqMem|Timelimit|NNodes
12|ann|vision|2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-01T11:05:00|COMPLETED|32|billing=32,cpu=32,gres/gpu:a100=8,gres/gpu=8,mem=256G,node=2|128Gn|1-12:00:00|2
12.batch|||2024-03-01T10:05:00|2024-03-01T10:05:00|2024-03-01T11:05:00|COMPLETED|16|cpu=16,mem=128G,node=1|||1
13_4|bob|nlp|2024-03-01T09:59:30|2024-03-01T10:00:00|2024-03-01T10:00:30|CANCELLED by 1000|4||4000Mc|UNLIMITED|1
14|bob|nlp|2024-03-01T12:00:00|Unknown|Unknown|PENDING|0|||01:30:00|0
15|bob|nlp|2024-03-01T12:00:00|2024-03-01T12:00:00|Unknown|RUNNING|4||4Gn|01:30:00|1
16|cat|nlp|2024-03-01T12:00:00|None|2024-03-01T12:01:00|CANCELLED by 7|0|||30:00|0
17|cat|nlp|1709294400|1709294400|1709294460|TIMEOUT|1|cpu=1,mem=2G,node=1,gres/gpu:v100=1|2G|01:00|1
"""


def test_what_slurm_tells_is_read_with_what_really_happened(tmp_path: Path) -> None:
    trace = read(tmp_path, SACCT, "history.txt")
    assert trace.zero == parse_time("2024-03-01T09:59:30Z")
    assert trace.not_jobs == 3
    assert trace.jobs == (
        TraceJob("13_4", 0, 30 * SECOND, 0, 4000, 1, 4 * 4000 * 2**20, "bob", "nlp", None),
        TraceJob("12", 30 * SECOND, HOUR, 8, 32_000, 2, 256 * 2**30, "ann", "vision", DAY + 12 * HOUR),
        TraceJob("17", 2 * HOUR + 30 * SECOND, MINUTE, 1, 1000, 1, 2 * 2**30, "cat", "nlp", MINUTE),
    )
    assert [past and past.state for past in trace.happened] == ["CANCELLED", "COMPLETED", "TIMEOUT"]
    assert trace.happened[1] == Happened(30 * SECOND + 5 * MINUTE, 30 * SECOND + 65 * MINUTE, "COMPLETED")


def test_gpus_of_old_versions_count_for_each_node(tmp_path: Path) -> None:
    text = (
        "JobID|Submit|Start|End|NCPUS|ReqGRES|NNodes|TimelimitRaw|\n"
        "1|2024-03-01T10:00:00|2024-03-01T10:00:00|2024-03-01T10:00:01|4|gpu:tesla:2|3|90|\n"
    )
    (job,) = read(tmp_path, text).jobs
    assert (job.gpus, job.walltime) == (6, 90 * MINUTE)


@pytest.mark.parametrize("gpus", ["gres/gpu=two", "gres/gpu:a100=two", "gres/gpu=-1", "cpu=1,gres/gpu="])
def test_gpus_of_slurm_that_are_no_number_are_refused_with_their_line(tmp_path: Path, gpus: str) -> None:
    row = "1|2024-03-01T10:00:00|2024-03-01T10:00:00|2024-03-01T11:00:00|cpu=4,"
    first, _ = refused(tmp_path, f"JobID|Submit|Start|End|AllocTRES\n{row}{gpus}\n")
    assert first == f"t.csv:2: gres/gpu: {gpus.rpartition('=')[2]!r} is not a number of GPUs"


def test_wrong_rows_of_slurm_are_told(tmp_path: Path) -> None:
    text = (
        "JobID|Submit|Start|End|AllocCPUS|AllocTRES|Timelimit\n"
        "1|soon|2024-03-01T10:00:00|2024-03-01T10:00:01|4||\n"
        "2|2024-03-01T10:00:00|2024-03-01T09:00:00|2024-03-01T10:00:01|4||\n"
        "3|2024-03-01T10:00:00|2024-03-01T10:00:00|2024-03-01T10:00:01|4||often\n"
        "4|2024-03-01T10:00:00|2024-03-01T10:00:00|2024-03-01T10:00:01|4|mem=lots|\n"
        "5|2024-03-01T10:00:00\n"
        "6|Unknown|2024-03-01T10:00:00|2024-03-01T10:00:01|4||\n"
    )
    assert refused(tmp_path, text)[:6] == [
        "t.csv:2: submit: 'soon' is not a time; write 2027-01-31T18:00:00",
        "t.csv:3: submit, start and end are not in chronological order",
        "t.csv:4: timelimit: 'often' is not a time limit; write 1-12:00:00",
        "t.csv:5: mem: 'lots' is not an amount of memory; write 512Mi, 2Gi, 2G or a number of bytes",
        "t.csv:6: has 2 columns; the header has 7",
        "t.csv:7: submit: is missing",
    ]
    (line,) = refused(tmp_path, "JobID|Submit|End|State\n1|1|2|x\n")
    assert line.startswith("t.csv: lacks Start, one of AllocTRES, ReqTRES")


@pytest.mark.skipif(
    not TRACES.is_dir(), reason="the real traces are not beside the repository (../shared/traces)"
)
@pytest.mark.parametrize(
    ("name", "count"), [("philly_2017", 65_797), ("kth_sp2_1996", 28_467), ("theta_2022", 23_911)]
)
def test_real_traces_are_read_whole(name: str, count: int) -> None:
    trace = read_trace(str(TRACES / f"{name}.csv.gz"))
    assert len(trace.jobs) == count
    assert all(0 <= job.submit <= MOST for job in trace.jobs)
    assert all(one.submit <= other.submit for one, other in zip(trace.jobs, trace.jobs[1:], strict=False))
