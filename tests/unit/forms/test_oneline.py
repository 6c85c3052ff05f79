"""Pieces of a line, and how problems with them are told."""

import pytest

from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import BadForm


def test_commas_in_parentheses_do_not_cut_a_line() -> None:
    line = Piece("a=f(1, g(2,3)), b")
    assert line.words() == [Piece("a=f(1, g(2,3))", 0), Piece("b", 16)]
    assert line.split() == [Piece("a=f(1", 0), Piece(" g(2", 6), Piece("3))", 11), Piece(" b", 15)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        (",", ["", ""]),
        ("a(,b", ["a(", "b"]),
        ("a),b", ["a)", "b"]),
        ("a(b,(c,d)", ["a(b", "(c,d)"]),
        (")(a,b)", [")(a,b)"]),
    ],
)
def test_a_parenthesis_without_partner_is_a_letter_like_any_other(text: str, parts: list[str]) -> None:
    assert [part.text for part in Piece(text).parts()] == parts


def test_a_pair_is_cut_at_its_first_mark_or_at_its_last() -> None:
    assert Piece("shares=a=1", 3).pair() == (Piece("shares", 3), Piece("a=1", 10))
    assert Piece("shares=a=1", 3).pair(last=True) == (Piece("shares=a", 3), Piece("1", 12))
    assert Piece("shares", 3).pair() == (Piece("shares", 3), None)
    assert Piece("a=").pair() == (Piece("a"), Piece("", 2))


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("zero", (Piece("zero"), None)),
        ("never()", (Piece("never"), Piece("", 6))),
        ("star (1h,k=f(2))", (Piece("star"), Piece("1h,k=f(2)", 6))),
        ("a(b", None),
        ("a)", None),
        ("a(b)c", None),
        ("a(b)(c)", None),
    ],
)
def test_a_call_has_one_pair_of_parentheses_at_its_end(text: str, call: object) -> None:
    assert Piece(text).call() == call


def test_every_piece_knows_where_it_stands() -> None:
    text = "  wait = compute( 0.1 , max_queue = 30 ) , order=fifo"
    found = list(Piece(text).words())
    for part in Piece(text).words():
        name, value = part.pair()
        assert value is not None
        call = value.strip().call()
        assert call is not None
        found += [name.strip(), call[0], *(call[1].words() if call[1] else ())]
    assert len(found) == 8
    assert all(text[piece.at :].startswith(piece.text) for piece in found)


def test_a_problem_names_its_character_unless_it_is_with_the_whole_line() -> None:
    line = OneLine(" a=1, b=x")
    first, second = line.whole.split()
    line.wrong(first, "is one; write two")
    line.mark(("b",), second.strip())
    line.found.add(("b", "inside"), "is 'x'; write a number")
    line.found.add(("c",), "is missing; write it")
    line.wrong(line.whole.strip(), "is too short; write more")
    with pytest.raises(BadForm) as error:
        line.check("--flag")
    assert str(error.value).splitlines() == [
        "--flag: is one; write two (at character 1)",
        "--flag: b.inside: is 'x'; write a number (at character 7)",
        "--flag: c: is missing; write it",
        "--flag: is too short; write more",
    ]


def test_a_parenthesis_that_does_not_match_is_pointed_at() -> None:
    for text, at in (("a(b(c)", 2), ("a)b(c", 2), ("a(b))", 5)):
        line = OneLine(text)
        assert not line.balanced()
        assert line.told() == [
            ((), f"{text!r} has unbalanced parentheses (at character {at})"),
        ]
    assert OneLine("a(b(c))").balanced()
