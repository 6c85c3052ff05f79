from datetime import datetime, timedelta, timezone

import pytest

from spillover.forms.jobs.reading import BadForm, JobForm, read_with_lines, to_doc
from spillover.forms.jobs.sbatch import Submitter
from spillover.forms.jobs.sbatch_options import BY_LETTER, SBATCH_OPTIONS, Use
from spillover.forms.jobs.sbatch_values import SbatchError, read_span
from spillover.model.job import Argv, On, Range, Shell
from spillover.model.notifications import Notify, When
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND, parse_time

NOW = datetime(2027, 1, 31, 12, 0, tzinfo=timezone(timedelta(hours=1)))
SHELL = Submitter({"HOME": "/home/ada", "TOKEN": "x", "SLURM_JOB_ID": "7", "PWD": "/"}, NOW)


def read(
    *lines: str, body: str = "true", arguments: tuple[str, ...] = (), submitter: Submitter = SHELL
) -> JobForm:
    text = "#!/bin/sh\n" + "".join(f"#SBATCH {line}\n" for line in lines) + body + "\n"
    ((form, _),) = read_with_lines(text, "job.sbatch", "/d", submitter, arguments)
    return form


def refused(*lines: str, body: str = "true") -> list[str]:
    with pytest.raises(BadForm) as error:
        read(*lines, body=body)
    return str(error.value).splitlines()


def warned(*lines: str) -> list[str]:
    return [str(warning) for warning in read(*lines).warnings]


def test_a_script_of_slurm_is_a_job_as_it_is() -> None:
    text = """\
#!/bin/bash
#SBATCH --job-name=sweep        # a comment
#SBATCH --array=1-100%4
#SBATCH --time=1-02:30:00
#SBATCH --cpus-per-task=2 --mem=4G
#SBATCH --partition=long
#SBATCH --account=physics
##SBATCH --nodes=99

#SBATCH --chdir=run --requeue
echo $SLURM_ARRAY_TASK_ID
#SBATCH --cpus-per-task=64
"""
    ((form, _),) = read_with_lines(text, "dir/job.sbatch", "/d")
    spec = form.spec
    assert spec.work == Argv(("/bin/bash", "-c", text, "job.sbatch"))
    assert (spec.name, spec.queue, spec.project) == ("sweep", "long", "physics")
    assert (spec.array, spec.throttle) == ((Range(1, 100),), 4)
    assert spec.terms.walltime == 26 * HOUR + 30 * MINUTE
    assert spec.shape.resources == Resources(2000, 4 << 30)
    assert spec.workdir == "/d/run"
    assert spec.env["SLURM_SUBMIT_DIR"] == "/d"
    assert form.warnings == ()


def test_short_options_and_options_with_a_space_are_read_too() -> None:
    spec = read("-J x -t 10 -c4", "-p q -A acc", "--mem 100", "-a 0-3").spec
    assert (spec.name, spec.queue, spec.project) == ("x", "q", "acc")
    assert spec.terms.walltime == 10 * MINUTE
    assert spec.shape.resources == Resources(4000, 100 << 20)
    assert spec.array == (Range(0, 3),)


def test_the_last_of_two_options_wins_and_ours_wins_over_both() -> None:
    assert read("--time=5", "--time=6").spec.terms.walltime == 6 * MINUTE
    text = "#!/bin/sh\n#SBATCH --time=5 --mem=1G\n#SPILL --walltime 9m\ntrue\n"
    ((form, _),) = read_with_lines(text, "s.sh", "/d")
    assert form.spec.terms.walltime == 9 * MINUTE
    assert form.spec.shape.resources.memory == 1 << 30


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("1:30:15", 5415),
        ("2-3", 183600),
        ("2-3:04", 183840),
        ("2-3:04:05", 183845),
        ("UNLIMITED", None),
        ("0", None),
    ],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int | None) -> None:
    assert read_span(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "1:2:3:4", "-1", "1-"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(SbatchError, match="is not a time"):
        read_span(text)


def test_tasks_of_one_node_are_one_task_with_all_their_cpus() -> None:
    spec = read("--ntasks=4 --cpus-per-task=2 --mem-per-cpu=1G --gpus-per-task=1").spec
    assert (spec.shape.tasks, spec.shape.resources) == (1, Resources(8000, 8 << 30, 4))
    assert spec.env["SLURM_NTASKS"] == "4"
    assert spec.env["SLURM_CPUS_PER_TASK"] == "2"
    assert spec.env["SLURM_MEM_PER_CPU"] == "1024"
    assert isinstance(spec.work, Shell)


def test_nodes_are_a_gang_whose_first_task_runs_the_script() -> None:
    spec = read("--nodes=2 --ntasks-per-node=4 --mem=8G --gres=gpu:a100:2", body="mpirun ./x").spec
    assert (spec.shape.tasks, spec.shape.resources) == (2, Resources(4000, 8 << 30, 2))
    assert spec.shape.topology is not None
    assert spec.shape.topology.spread == "node"
    assert "gpu:a100" in spec.shape.needs
    assert isinstance(spec.work, Argv)
    assert spec.work.command[2] == 'exec "$SPILL_RSH" --serve -- "$@"'
    assert spec.work.command[4:6] == ("/bin/sh", "-c")
    assert spec.env["SLURM_NTASKS"] == "8"
    assert read("-n 8 --ntasks-per-node=4").spec.shape.tasks == 2
    assert read("-N 2 -G 4").spec.shape.resources.gpu == 2
    elastic = read("-N 2-4").spec
    assert (elastic.shape.tasks, elastic.shape.most) == (2, 4)
    assert "SLURM_NTASKS" not in elastic.env, "agents tell how many there are"


def test_dependencies_are_those_of_slurm() -> None:
    form = read("-d afterok:a:b,afterany:c,afternotok:d,singleton")
    ends = [(one.ref, one.on) for one in form.after]
    assert ends == [("a", On.SUCCESS), ("b", On.SUCCESS), ("c", On.ANY), ("d", On.FAILURE)]
    assert form.spec.singleton
    form = read("-d aftercorr:a,afterok:b:c,aftercorr:c", "--array=1-3")
    assert [(one.ref, one.on, one.same) for one in form.after] == [
        ("a", On.SUCCESS, True),
        ("b", On.SUCCESS, False),
        ("c", On.SUCCESS, False),  # the strictest
    ]
    assert refused("-d aftercorr:a") == [
        "job.sbatch:2: --dependency: same (aftercorr) is for arrays; add `array`, or write `all` (afterok)"
    ]
    assert refused("-d after:a") == [
        "job.sbatch:2: --dependency: 'after' is not supported; write one of afterok, aftercorr, afterany, afternotok, singleton"
    ]
    form = read("-d afterok:a:a,afterany:a:b,afternotok:b,afterany:b")
    assert [(one.ref, one.on) for one in form.after] == [("a", On.SUCCESS), ("b", On.FAILURE)]
    assert refused("-d afterok:a,afternotok:a") == [
        "job.sbatch:2: --dependency: 'a' cannot both succeed and fail; write afterany:a for any end"
    ]
    assert "alternatives" in refused("-d afterok:a?afterok:b")[0]
    assert "names no job" in refused("-d afterok")[0]


def test_output_goes_where_slurm_would_write_it() -> None:
    both = read("-o out_%A_%a.txt").spec
    assert (both.stdout, both.stderr) == ("out_%A_%a.txt", "out_%A_%a.txt")
    own = read("-o out_%j.txt -e err_%x_%N.txt --open-mode=append").spec
    assert (own.stdout, own.stderr, own.append) == ("out_%j.txt", "err_%x_%N.txt", True)
    assert refused("-o out_%Q") == [
        "job.sbatch:2: --output: '%Q' in 'out_%Q' is not a pattern; write one of %A, %a, %j, %J, %x, %N, %n, %t, %u, %%"
    ]


def test_variables_are_exported_by_name_or_all_with_a_warning() -> None:
    own = {"SPILL_SRUN": "offered"}
    assert read("--export=NONE").spec.env == own
    assert read("--export=HOME,A=b").spec.env == own | {"HOME": "/home/ada", "A": "b"}
    everything = read("--export=ALL,A=b")
    assert everything.spec.env == own | {"HOME": "/home/ada", "TOKEN": "x", "A": "b"}
    assert "others can read them" in str(everything.warnings[0])
    assert refused("--export=LOST") == [
        "job.sbatch:2: --export: 'LOST' is not set in this shell; write LOST=VALUE"
    ]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now+2hours", "2027-01-31T14:00:00+01:00"),
        ("now+90", "2027-01-31T12:01:30+01:00"),
        ("16:30", "2027-01-31T16:30:00+01:00"),
        ("08:00", "2027-02-01T08:00:00+01:00"),
        ("tomorrow", "2027-02-01T00:00:00+01:00"),
        ("2027-03-01", "2027-03-01T00:00:00+01:00"),
        ("2027-03-01T10:00", "2027-03-01T10:00:00+01:00"),
    ],
)
def test_begin_is_a_time_of_the_submitter(text: str, at: str) -> None:
    assert read(f"--begin={text}").spec.not_before == parse_time(at)


def test_hold_requeue_exclusive_nice_comment_and_reservation_are_used() -> None:
    spec = read("-H --no-requeue --exclusive --nice=10 --comment='a b' --reservation=course").spec
    assert (spec.hold, spec.terms.retry.lost, spec.priority) == (True, 0, -10)
    assert spec.shape.topology is not None
    assert spec.shape.topology.exclusive
    assert spec.labels == {"comment": "a b"}
    assert spec.shape.reservation == "course"
    assert read("--requeue").spec.terms.retry.lost == 3


def test_a_qos_and_the_host_of_submission_are_told_to_the_script() -> None:
    form = read("--qos=high --export=HOME", submitter=SHELL._replace(host="login1"))
    assert form.spec.labels == {"qos": "high"}
    told = {"SLURM_JOB_QOS": "high", "SLURM_SUBMIT_HOST": "login1"}
    assert form.spec.env == {"HOME": "/home/ada", "SPILL_SRUN": "offered", **told}
    (warning,) = form.warnings
    assert str(warning) == (
        "job.sbatch:2: --qos: becomes the label `qos` and has no other effect; "
        "write `#SPILL --priority N` or a partition"
    )


def test_features_and_names_of_nodes_are_constraints() -> None:
    doc = to_doc(read("-C 'intel&gpu' -x 'n[1-2]'"))
    assert doc["spec"]["constraints"]
    assert to_doc(read("-C 'a|b'"))["spec"]["constraints"]
    assert "is not supported" in refused("-C '[rack1*2&rack2*4]'")[0]


def test_a_signal_before_the_end_leaves_the_walltime_as_it_is() -> None:
    spec = read("--time=10 --signal=B:USR1@120").spec
    assert (spec.signal, spec.signal_before, spec.terms.walltime) == ("USR1", 120 * SECOND, 10 * MINUTE)
    assert (read("--time=10 --signal=TERM").spec.signal_before) == 60 * SECOND
    assert read("--time=10 --signal=SIGUSR2@5").spec.signal == "USR2"
    assert read("--time=10 --signal=10@5").spec.signal == "USR1"
    assert refused("--time=10 --signal=KILL@60") == [
        "job.sbatch:2: --signal: 'KILL' is not a signal to send; write USR1@60"
    ]
    assert "is not a signal" in refused("--time=10 --signal=R:USR1@60")[0]
    assert "needs --time" in refused("--signal=TERM@60")[0]


def test_what_a_job_runs_without_is_ignored_with_a_warning() -> None:
    assert warned("--time-min=5", "--quiet --wckey=x") == [
        "job.sbatch:2: --time-min: is ignored: the job keeps its --time",
        "job.sbatch:3: --quiet: is ignored: it belongs to the command line, not to the job",
        "job.sbatch:3: --wckey: is ignored: write `#SPILL --label wckey=VALUE`",
    ]


def test_mail_goes_to_the_addresses_that_the_script_names() -> None:
    assert read("--mail-type=END,FAIL", "--mail-user=ada@example.org").spec.notify == (
        Notify("ada@example.org", (When.END, When.FAIL)),
    )
    both = read("--mail-type=all --mail-user=a@b.c,d@e.f").spec.notify
    on = (When.BEGIN, When.END, When.FAIL, When.REQUEUE)
    assert both == (Notify("a@b.c", on), Notify("d@e.f", on))
    assert read("--mail-type=NONE --mail-user=a@b.c").spec.notify == ()
    assert read("--mail-type=TIME_LIMIT --mail-user=a@b.c").spec.notify == (
        Notify("a@b.c", (When.TIME_LIMIT,)),
    )


def test_mail_that_is_not_sent_is_told_with_its_line() -> None:
    assert warned("--mail-type=END") == [
        "job.sbatch:2: --mail-type: is ignored: the server does not know your address; write --mail-user=ada@example.org too"
    ]
    assert warned("--mail-user=ada@example.org") == [
        "job.sbatch:2: --mail-user: is ignored without --mail-type; write --mail-type=END,FAIL too"
    ]
    assert warned("--mail-type=END", "--mail-user=ada") == [
        "job.sbatch:3: --mail-user: is ignored: 'ada' is not a mail address; write ada@example.org"
    ]
    assert warned("--mail-type=END,ARRAY_TASKS,TIME_LIMIT_80,INVALID_DEPEND --mail-user=a@b.c") == [
        "job.sbatch:2: --mail-type: ARRAY_TASKS is ignored: an array sends one mail, which counts how its members ended",
        "job.sbatch:2: --mail-type: TIME_LIMIT_80 is ignored: mail comes at the time limit, by TIME_LIMIT",
        "job.sbatch:2: --mail-type: INVALID_DEPEND is told as a failure, with all others",
    ]
    assert refused("--mail-type=ENDED")[0].startswith(
        "job.sbatch:2: --mail-type: 'ENDED' is not one of NONE, BEGIN, END, FAIL"
    )


def test_what_is_wrong_or_unknown_is_told_with_its_line() -> None:
    assert refused(
        "--tiem=5", "--time=bla --mem=4Q", "-n 0 word", "--array=1-3%0", "--hold=yes --wrap=x"
    ) == [
        "job.sbatch:2: unknown option '--tiem'; did you mean `--time`?",
        "job.sbatch:3: --time: 'bla' is not a time; write minutes, hours:minutes:seconds or days-hours",
        "job.sbatch:3: --mem: '4Q' is not a size; write 4G or 500M",
        "job.sbatch:4: 'word' does not belong to an option; put values with spaces in quotes",
        "job.sbatch:4: --ntasks: '0' is not a whole number of 1 or more",
        "job.sbatch:5: --array: '0' is not a number of members at a time; write 1 or more, as in 1-3%4",
        "job.sbatch:6: --hold: takes no value; remove 'yes'",
        "job.sbatch:6: --wrap: is not supported: write the command into the script, or use `spill run -- COMMAND`",
    ]
    assert refused("hetjob") == ["job.sbatch:2: hetjob is not supported; write a job file with `groups`"]
    assert refused("-A 'no name'")[0].startswith("job.sbatch:2: --account: ")


@pytest.mark.parametrize(
    "body", ["srun ./x", "time srun -n 2 ./x", "a && srun ./x", "X=1 exec srun ./x", "y=$(srun ./x)"]
)
def test_a_script_that_calls_srun_runs_where_it_is(body: str) -> None:
    spec = read("--time=5", body=body).spec
    assert (spec.env["SPILL_SRUN"], spec.shape.runs) == ("needed", ("command", "srun"))


@pytest.mark.parametrize("body", ["# srun ./x", "./srun.sh", "bash run-srun", "PROG=/opt/srun", "true"])
def test_a_script_that_may_call_srun_in_another_one_finds_it_where_it_is(body: str) -> None:
    spec = read("--time=5", body=body).spec
    assert (spec.env["SPILL_SRUN"], spec.shape.runs) == ("offered", ("command",))
    assert read("--time=5 --export=SPILL_SRUN=no", body=body).spec.env["SPILL_SRUN"] == "no"


def test_a_login_shell_finds_srun_whatever_its_profile_does_to_the_path() -> None:
    text = "#!/bin/bash -l\n#SBATCH -t 5\nsrun ./x\n"
    ((form, _),) = read_with_lines(text, "job.sbatch", "/d")
    assert isinstance(form.spec.work, Argv)
    *_, script, name = form.spec.work.command
    assert script == 'export PATH="${SPILL_SRUN:+${SPILL_SRUN%/*}:}$PATH"; ' + text
    assert name == "job.sbatch"


def test_a_name_that_is_none_here_is_changed_with_a_warning() -> None:
    form = read("-J 'my job/1'")
    assert form.spec.name == "my-job-1"
    assert "is not a name here" in str(form.warnings[0])


def test_a_script_gets_its_arguments() -> None:
    spec = read("--time=5", body="echo $1", arguments=("a b", "-c")).spec
    assert isinstance(spec.work, Argv)
    assert spec.work.command[-3:] == ("job.sbatch", "a b", "-c")
    with pytest.raises(BadForm, match="only scripts take arguments"):
        read_with_lines("apiVersion: spillover/v1\n", "job.yaml", "/d", SHELL, ("x",))


def test_every_option_has_its_own_letter_and_advice_if_it_is_not_used() -> None:
    assert len(BY_LETTER) == len([option for option in SBATCH_OPTIONS if option.short])
    assert all(bool(option.advice) == (option.use is not Use.USED) for option in SBATCH_OPTIONS)
