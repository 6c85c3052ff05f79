"""Reads a pool from the words of a cluster on the command line: `pool=process(boot=2s),offer=small(cpu=1,...),max=3`."""

from typing import Any, Final

from spillover.forms.checking import nearest
from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import shown
from spillover.forms.words import Word, meant, words_of
from spillover.providers.registry import load_providers
from spillover.wire.clusterfile import OfferDoc, PoolDoc

POOL: Final = "pool"
OFFER: Final = "offer"
_ZONE: Final = "zone"
_BUDGET: Final = "budget"
_LIMITS: Final = {name: word for name, word in words_of(PoolDoc).items() if name != "provider"}
"""Fields of a pool that one word sets."""
POOL_OPTIONS: Final = (POOL, OFFER, *_LIMITS, _BUDGET)
_FORMS: Final = {
    POOL: "pool=PROVIDER(OPTION=VALUE,...)",
    OFFER: "offer=TYPE(cpu=4,memory=16Gi,hour=0.2)",
    _BUDGET: "budget=LIMIT/PERIOD, such as 50/day",
}


def put_pool_word(value: dict[str, Any], word: Piece, line: OneLine) -> None:
    """Store one word of a pool where spill.yaml has it; add problems to the line."""
    name, right = word.pair()
    pool = value.setdefault("pool", {})
    key = name.text
    if right is None or not right.text:
        line.wrong(word, f"{key} needs a value: {_FORMS.get(key, f'{key}=...')}")
    elif key == POOL:
        _put_provider(pool, word, right, line)
    elif key == OFFER:
        _put_offer(pool, word, right, line)
    elif key == _BUDGET:
        limit, per = right.pair("/")
        line.mark(("pool", _BUDGET), word)
        pool[_BUDGET] = {"limit": limit.text, "per": per.text if per else ""}
    else:
        line.mark(("pool", key), word)
        pool[key] = meant(right.text, _LIMITS[key])


def _put_provider(pool: dict[str, Any], word: Piece, right: Piece, line: OneLine) -> None:
    """Store a provider with its options."""
    called = right.call()
    if called is None:
        line.wrong(word, f"must have the form {_FORMS[POOL]}")
        return
    name, inside = called
    line.mark(("pool", "provider"), word)
    kind = load_providers().get(name.text)
    # The options of an unknown provider are unknown. The check of its name reports it.
    if inside is None or kind is None:
        pool["provider"] = name.text
        return
    options = _inside(inside, words_of(kind.form, several=True), f"the provider {name.text}", line)
    pool["provider"] = {name.text: options}


def _put_offer(pool: dict[str, Any], word: Piece, right: Piece, line: OneLine) -> None:
    """Store an offer; `zone` may be repeated."""
    name, inside = right.call() or (right, None)
    if inside is None or not name.text:
        line.wrong(word, f"must have the form {_FORMS[OFFER]}")
        return
    offers = pool.setdefault("offers", [])
    line.mark(("pool", "offers", len(offers)), word)
    known = {key: each for key, each in words_of(OfferDoc).items() if key != "type"} | {_ZONE: Word.TEXT}
    zones: list[str] = []
    offer = _inside(inside, known, "an offer", line, zones)
    offers.append({"type": name.text, **offer, **({"zones": zones} if zones else {})})


def _inside(
    words: Piece, known: dict[str, Word], whose: str, line: OneLine, zones: list[str] | None = None
) -> dict[str, Any]:
    """Read the words within parentheses; `zones` collects values of `zone`."""
    read: dict[str, Any] = {}
    for word in words.words(pairs="()[]{}"):
        name, right = word.pair()
        key = name.text
        if key not in known:
            line.wrong(word, f"{shown(key)} is not an option of {whose}{nearest(key, known)}")
        elif known[key] is Word.FLAG and right is None:
            read[key] = True
        elif right is None:
            line.wrong(word, f"{key} needs a value: {key}=...")
        elif zones is not None and key == _ZONE:
            zones.append(right.text)
        elif key in read:
            line.wrong(word, f"{key} is given twice; remove one")
        else:
            read[key] = meant(right.text, known[key])
    return read
