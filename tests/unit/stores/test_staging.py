"""A server that ends while it moves staged records to their place leaves a whole checkpoint."""

from pathlib import Path

import apsw
import pytest

from spillover.ports.journal import Changed, Unwritable
from spillover.stores.open import open_store
from spillover.stores.sqlite import journal as sqlite_journal
from spillover.testing.stores import a_batch, lead, records_of


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_what_is_staged_counts_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    store = await open_store("sqlite", tmp_path)
    epoch = await lead(store)
    await store.journal.append(0, a_batch(b"a", b"b"), epoch)
    old = {("job", f"{number}"): b"old" for number in range(10)}
    await store.journal.checkpoint(Changed(1, old), epoch)
    await store.journal.stage({("job", f"{number}"): b"new" for number in range(2, 12)}, epoch, anew=True)
    settle, left = sqlite_journal._settle, steps

    def failing(connection: apsw.Connection, epoch: int) -> bool:
        nonlocal left
        if left == 0:
            raise apsw.FullError("the disk is full")
        left -= 1
        return settle(connection, epoch)

    monkeypatch.setattr(sqlite_journal, "STEP_ROWS", 2)
    monkeypatch.setattr(sqlite_journal, "_settle", failing)
    with pytest.raises(Unwritable, match="the disk is full"):
        await store.journal.checkpoint(
            Changed(2, {("job", "3"): None, ("job", "0"): b"newer"}, staged=True), epoch
        )
    await store.close()
    monkeypatch.undo()
    expected = {f"{number}": b"new" for number in range(2, 12) if number != 3} | {"0": b"newer", "1": b"old"}
    again = await open_store("sqlite", tmp_path)
    loaded = await again.journal.load()
    assert (loaded.checkpoint, {key: body for _, key, body in await records_of(again.journal)}) == (
        2,
        expected,
    )
    epoch = await lead(again)
    await again.journal.checkpoint(Changed(2, {("job", "0"): b"last"}), epoch)
    assert {key: body for _, key, body in await records_of(again.journal)} == {**expected, "0": b"last"}
    await again.close()
