"""Whom a job wants to be told: in job files, as options, and back."""

from typing import Any

import pytest

from spillover.forms.jobs.options import doc_from_options
from spillover.forms.jobs.reading import read_job
from spillover.forms.jobs.writing import to_doc
from spillover.forms.problems import BadForm
from spillover.model.notifications import Notify, When, domain_of, is_address


def job(notify: Any) -> dict[str, Any]:
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", "notify": notify}}


def read(*notify: Any) -> tuple[Notify, ...]:
    return read_job(job(list(notify))).spec.notify


def refused(*notify: Any) -> list[str]:
    with pytest.raises(BadForm) as raised:
        read(*notify)
    return [f"{each.path}: {each.message}" for each in raised.value.problems]


def test_receivers_are_read_in_their_long_and_their_short_form() -> None:
    assert read({"to": "ada@example.org"}, "bob@example.org", "begin,fail:chat") == (
        Notify("ada@example.org", (When.END,)),
        Notify("bob@example.org", (When.END,)),
        Notify("chat", (When.BEGIN, When.FAIL)),
    )
    assert read({"to": "chat", "on": ["time_limit", "requeue"]}) == (
        Notify("chat", (When.TIME_LIMIT, When.REQUEUE)),
    )
    assert read() == ()


def test_a_receiver_that_is_named_twice_gets_both() -> None:
    assert read("begin:chat", "end:chat", "end:chat") == (Notify("chat", (When.BEGIN, When.END)),)


def test_what_is_wrong_is_told_in_a_line() -> None:
    assert refused("ended:ada@example.org", "ada@", "a b", "end:", {"to": "a@b.c\nBcc: eve@x.y"}) == [
        "spec.notify[0]: 'ended' is not one of begin, end, fail, time_limit, requeue; write end:ada@example.org",
        "spec.notify[1]: 'ada@' is not a mail address; write ada@example.org",
        "spec.notify[2]: 'a b' is neither a mail address nor the name of a webhook; write end:ada@example.org",
        "spec.notify[3]: '' is neither a mail address nor the name of a webhook; write end:ada@example.org",
        "spec.notify[4]: 'a@b.c\\nBcc: eve@x.y' is not a mail address; write ada@example.org",
    ]
    assert refused(*["end:chat"] * 11)[0].startswith("spec.notify: ")
    assert refused({"to": "https://eve.example.org/"}) == [
        "spec.notify[0]: 'https://eve.example.org/' is neither a mail address nor the name of a webhook; write end:ada@example.org"
    ]


def test_a_job_that_is_written_reads_as_the_same_job() -> None:
    spec = read_job(job(["begin,end:ada@example.org", "fail:chat"])).spec
    assert to_doc(spec)["spec"]["notify"] == [
        {"to": "ada@example.org", "on": ["begin", "end"]},
        {"to": "chat", "on": ["fail"]},
    ]
    assert read_job(to_doc(spec)).spec == spec
    assert "notify" not in to_doc(read_job(job([])).spec)["spec"]


def test_options_name_receivers() -> None:
    doc = doc_from_options({"notify": ["end:ada@example.org", "chat"]}, {"run": "true"})
    assert doc["spec"]["notify"] == ["end:ada@example.org", "chat"]
    assert [each.to for each in read_job(doc).spec.notify] == ["ada@example.org", "chat"]


@pytest.mark.parametrize(
    "text", ["ada@example.org", "a.b+c@mail-1.example.org", "a@b", "x@[", "ada@EXAMPLE.org"]
)
def test_addresses_are_those_that_need_no_quotes(text: str) -> None:
    assert is_address(text) is (text != "x@[")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "@b.c",
            "a@",
            "a b@c.d",
            "a@b..c",
            "a@-b.c",
            "<a@b.c>",
            "a@b.c,d@e.f",
            "a@b.c\n",
            '"a b"@c.d',
            "a@b@c",
        ),
        f"{'a' * 65}@b.c",
        f"a@{'b.' * 130}c",
        "ad\N{LATIN SMALL LETTER A WITH DIAERESIS}@b.c",
    ],
)
def test_other_texts_are_no_addresses(text: str) -> None:
    assert not is_address(text)


def test_the_domain_of_an_address_is_in_lower_case() -> None:
    assert domain_of("Ada@Example.ORG") == "example.org"
