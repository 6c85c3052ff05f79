import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.forms.documents import MOST_BYTES
from spillover.forms.files import read_file
from spillover.forms.jobs.options import BY_FLAG, OPTIONS, as_flags, doc_from_options
from spillover.forms.jobs.reading import BadForm, JobForm, read_job, read_jobs
from spillover.forms.jobs.scripts import AS_FILE, is_script
from spillover.model.job import Argv, On, Shell
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE


def read(text: str, source: str = "dir/script.sh", directory: str | None = "/d") -> JobForm:
    (form,) = read_jobs(text.encode(), source, directory)
    return form


def refused(text: str, source: str = "s.sh", directory: str | None = "/d") -> list[str]:
    with pytest.raises(BadForm) as error:
        read_jobs(text.encode(), source, directory)
    return str(error.value).splitlines()


def test_lines_at_the_top_of_a_script_are_its_options() -> None:
    text = """\
#!/bin/sh
# what it does
#SPILL --cpu 4 --memory=2Gi   # a comment

#SPILL --walltime 2h --env "A=b c" --env D= --after prepare:any --after other
echo hello
#SPILL --cpu 64
"""
    form = read(text)
    assert form.spec.work == Shell(text)
    assert form.spec.name == "script.sh"
    assert form.spec.shape.resources == Resources(4000, 2**31)
    assert form.spec.terms.walltime == 2 * HOUR
    assert form.spec.env == {"A": "b c", "D": ""}
    assert [(one.ref, one.on) for one in form.after] == [("prepare", On.ANY), ("other", On.SUCCESS)]
    assert form.spec.workdir == "/d"


def test_a_file_is_a_script_by_its_first_line_or_by_its_options() -> None:
    assert is_script(b"#!/bin/sh\n")
    assert is_script("# x\n\n#SPILL --cpu 1\ntrue\n")
    assert not is_script(b"# a job file\napiVersion: spillover/v1\n#SPILL --cpu 1\n")
    assert not is_script(b"")


@pytest.mark.parametrize(
    ("first", "command"),
    [
        ("#!/bin/bash -e", ["/bin/bash", "-e", "-c", "{}", "script.sh"]),
        ("#!/usr/bin/env bash", ["/usr/bin/env", "bash", "-c", "{}", "script.sh"]),
        ("#!/bin/sh -x", ["/bin/sh", "-x", "-c", "{}", "script.sh"]),
        (
            "#!/usr/bin/env -S python3 -u",
            ["/usr/bin/env", "python3", "-u", "-c", AS_FILE, str(Path.cwd() / "dir/script.sh"), "{}"],
        ),
        (
            "#!/usr/bin/python3.11",
            ["/usr/bin/python3.11", "-c", AS_FILE, str(Path.cwd() / "dir/script.sh"), "{}"],
        ),
        ("#! /usr/bin/perl -w", ["/usr/bin/perl", "-w", "-e", "{}"]),
    ],
)
def test_a_script_travels_with_its_job_in_the_words_of_its_interpreter(
    first: str, command: list[str]
) -> None:
    text = f"{first}\n#SPILL --cpu 2\n:\n"
    assert read(text).spec.work == Argv(tuple(word.replace("{}", text) for word in command))


def test_a_script_of_another_interpreter_is_named_by_its_path() -> None:
    text = "#!/usr/bin/awk -f\nBEGIN {}\n"
    assert read(text, "/s/x.awk").spec.work == Argv(("/usr/bin/awk", "-f", "/s/x.awk"))
    assert read(text, "x.awk").spec.work == Argv(("/usr/bin/awk", "-f", str(Path.cwd() / "x.awk")))
    assert "save the script to a file and submit it" in refused(text, "-")[0]


def test_a_script_too_long_for_an_argument_is_named_by_its_path() -> None:
    text = "#!/bin/sh\n" + ": nothing\n" * 20_000
    assert read(text, "/s/long.sh").spec.work == Argv(("/bin/sh", "/s/long.sh"))
    assert "longer than" in refused(text, "-")[0]


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\n#SPILL --cpu 1\necho one\n",
        "#!/bin/bash\nA=(one two)\necho ${A[0]}\n",
        "#!/usr/bin/env python3\nprint('one')\n",
    ],
)
def test_what_a_script_becomes_really_runs(text: str) -> None:
    work = read(text).spec.work
    command = ["/bin/sh", "-c", work.run] if isinstance(work, Shell) else list(getattr(work, "command", ()))
    done = subprocess.run(command, capture_output=True, check=True, env={"PATH": os.environ["PATH"]})
    assert done.stdout == b"one\n"


def run_python(text: str, source: str) -> subprocess.CompletedProcess[str]:
    work = read(f"#!{sys.executable}\n{text}", source).spec.work
    assert isinstance(work, Argv)
    return subprocess.run(work.command, capture_output=True, check=False, text=True)


def test_a_python_script_sees_itself_as_the_file_that_it_was(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("x = 7\n")
    text = "import sys, pickle, beside\ndef f(): pass\nprint(__name__, __file__, sys.argv, sys.path[0], beside.x, pickle.loads(pickle.dumps(f)) is f, 'start' in globals())\n"
    done = run_python(text, str(tmp_path / "p.py"))
    path = tmp_path / "p.py"
    assert (done.stdout, done.stderr) == (f"__main__ {path} ['{path}'] {tmp_path} 7 True False\n", "")
    (tmp_path / "p.py").write_text(f"#!{sys.executable}\n{text}")
    plain = subprocess.run([sys.executable, path], capture_output=True, check=True, text=True)
    assert plain.stdout == done.stdout


def test_the_traceback_of_a_python_script_is_that_of_a_file_also_where_there_is_none(tmp_path: Path) -> None:
    text = "def fail():\n    raise ValueError('no')\n\nfail()\n"
    path = tmp_path / "p.py"
    done = run_python(text, str(path))
    path.write_text(f"#!{sys.executable}\n{text}")
    plain = subprocess.run([sys.executable, path], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (1, plain.stderr)
    wrong = run_python("x = = 1\n", str(tmp_path / "wrong.py"))
    assert f'File "{tmp_path}/wrong.py", line 2' in wrong.stderr
    assert "AS_FILE" not in wrong.stderr
    assert "<string>" not in wrong.stderr
    assert run_python("import sys; sys.exit(3)\n", str(path)).returncode == 3


def test_all_problems_of_a_script_are_told_with_their_lines() -> None:
    text = "#!/bin/sh\n#SPILL --cpus 4 --walltime\n#SPILL --cpu -1 --memory 2Qi\n#SPILL --env X --gpu one word\n#SPILL 'x\n#SPILLS\n:\n"
    assert refused(text) == [
        "s.sh:2: unknown option '--cpus'; did you mean `--cpu`?",
        "s.sh:2: --walltime: needs a value; write --walltime TIME",
        "s.sh:4: 'word' does not belong to an option; put values with spaces in quotes",
        "s.sh:4: --gpu: 'one' is not a whole number",
        "s.sh:4: --env: 'X' is not NAME=VALUE",
        "s.sh:5: cannot be parsed: no closing quotation",
        "s.sh:6: '#SPILLS' is not #SPILL; add a space after #SPILL",
    ]
    assert refused("#SPILL --cpu -1 --memory 2Qi\n:\n") == [
        "s.sh:1: --cpu: '-1' is not a number of CPUs; write 2, 1.5 or 500m",
        "s.sh:1: --memory: '2Qi' is not an amount of memory; write 512Mi, 2Gi, 2G or a number of bytes",
    ]


def test_a_script_that_is_not_text_is_refused() -> None:
    for text, word in (
        (b"#!/bin/sh\n\xff", "UTF-8"),
        (b"#!/bin/sh\n\0", "NUL"),
        (b"#!" + b"x" * MOST_BYTES, "larger"),
    ):
        with pytest.raises(BadForm, match=word):
            read_jobs(text, "s.sh")


VALUES = {
    "--name": "n",
    "--project": "p",
    "--queue": "q",
    "--cpu": "2",
    "--memory": "1Gi",
    "--gpu": "2",
    "--tasks": "2",
    "--walltime": "10m",
    "--estimate": "1m",
    "--deadline": "2027-01-31T18:00:00Z",
    "--not-before": "2027-01-30T18:00:00Z",
    "--priority": "-5",
    "--burst": "never",
    "--max-cost": "1.5",
    "--egress": "20G",
    "--need": "a",
    "--cluster": "onprem",
    "--avoid": "cloud",
    "--region": "north",
    "--where": "zone=a",
    "--within": "rack",
    "--spread": "node",
    "--exclusive": "node",
    "--reservation": "course",
    "--pin": "socket",
    "--gpu-link": "nvlink",
    "--env": "A=1",
    "--workdir": "w",
    "--retry-exit": "1",
    "--retry-lost": "0",
    "--on-cluster-failure": "requeue",
    "--on-task-failure": "ignore",
    "--on-task-success": "end",
    "--lost-after": "7m",
    "--grace": "1s",
    "--array": "1-3",
    "--after": "x",
    "--input": "data.csv:in.csv",
    "--output": "out/*",
    "--notify": "end:ada@example.org",
    "--key": "k",
    "--label": "l=1",
    "--singleton": "",
    "--hold": "",
    "--pty": "",
    "--stdin": "words.txt",
    "--stdout": "res_%A_%a.out",
    "--stderr": "err.txt",
    "--open-mode": "append",
    "--environment": "ml",
    "--requirements": "requirements.txt",
    "--keep-state": "",
    "--secret": "db-password",
    "--secret-file": "license=KEY_FILE",
    "--signal": "USR1",
    "--signal-before": "10s",
}


def test_every_flag_sets_the_field_of_a_job_that_it_names() -> None:
    assert VALUES.keys() == BY_FLAG.keys()
    for option in OPTIONS:
        given = [VALUES[option.flag]] if option.repeatable else VALUES[option.flag]
        others = {"tasks": "2"} if option.flag.startswith(("--on-task", "--spread")) else {}
        others |= {"walltime": "1m"} if option.flag.startswith("--signal") else {}
        others |= {"signal_before": "5s"} if option.flag == "--signal" else {}
        others |= {"gpu": "2"} if option.flag == "--gpu-link" else {}
        plain = read_job(doc_from_options(others, {"command": ["true"]}))
        with_it = read_job(doc_from_options(others | {option.dest: given}, {"command": ["true"]}))
        assert with_it != plain, option.flag


def test_all_flags_together_make_one_job() -> None:
    alone = {"--array", "--pty", "--requirements"}
    given = {option.dest: VALUES[option.flag] for option in OPTIONS if option.flag not in alone}
    form = read_job(doc_from_options(given, {"command": ["true"]}), directory="/d")
    assert form.spec.terms.lost_after == 7 * MINUTE
    assert form.spec.priority == -5
    assert form.spec.workdir == "/d/w"
    assert form.spec.labels == {"l": "1"}
    assert form.key == "k"


def test_problems_of_a_job_are_named_by_the_flags_they_came_from() -> None:
    doc = doc_from_options({"cpu": "0", "env": ["A=x"], "array": "9-1"}, {"command": ["true"]})
    with pytest.raises(BadForm) as error:
        read_job(doc)
    assert [problem.path for problem in as_flags(error.value).problems] == ["--cpu", "--array"]
    with pytest.raises(BadForm, match=r"--gpu: '1\.5' is not a whole number"):
        doc_from_options({"gpu": "1.5"}, {"run": "x"})
    with pytest.raises(BadForm) as error:
        read_job(doc_from_options({"tasks": "2-8"}, {"run": "x"}))
    [told] = [str(problem) for problem in as_flags(error.value).problems]
    assert told.endswith("--tasks: '2-8' is not a number of tasks; write 4, or a range such as 2..8")


def test_files_are_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(BadForm, match="larger than 4 MiB"):
        read_file(str(path))
    with pytest.raises(BadForm, match="larger than 4 MiB"):
        read_file("-", io.BytesIO(b"x" * (MOST_BYTES + 1)))
    path.write_bytes(b"x")
    assert read_file(str(path)) == b"x"
    assert read_file("-", io.BytesIO(b"y")) == b"y"


def test_files_that_cannot_be_read_are_told_in_one_line(tmp_path: Path) -> None:
    for name, why in (
        (str(tmp_path / "none"), "none: No such file or directory"),
        (str(tmp_path), ": Is a directory"),
        ("a\0b", "cannot be read: embedded null byte"),
    ):
        with pytest.raises(BadForm, match=f"{why}$"):
            read_file(name)
