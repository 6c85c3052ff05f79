"""Questions to a journal that SQLite and PostgreSQL are asked in the same words."""

from typing import Final

# Everything may have been compacted away: then the journal ends where it was compacted to.
LAST: Final = (
    "SELECT coalesce((SELECT last FROM batches ORDER BY first DESC LIMIT 1), "
    "(SELECT value FROM meta WHERE name = 'compacted'))"
)
OLDEST: Final = (
    "SELECT coalesce((SELECT min(first) FROM batches), (SELECT value + 1 FROM meta WHERE name = 'compacted'))"
)
CHECKPOINT: Final = "SELECT value FROM meta WHERE name = 'checkpoint'"
STAGED: Final = "SELECT value FROM meta WHERE name = 'staged'"
INDEXED: Final = "SELECT value FROM meta WHERE name = 'indexed'"
COUNT: Final = "SELECT count(*) FROM records"
# Some records behind a kind and a key, in their order.
RECORDS: Final = (
    "SELECT kind, key, body FROM records WHERE (kind, key) > ($1, $2) ORDER BY kind, key LIMIT $3"
)
# While the records that were staged for the last checkpoint are moved to their place, they count where they are.
OVERLAID: Final = (
    "SELECT kind, key, body FROM records WHERE (kind, key) > ($1, $2) "
    "AND NOT EXISTS (SELECT 1 FROM staged WHERE staged.kind = records.kind AND staged.key = records.key) "
    "UNION ALL SELECT kind, key, body FROM staged WHERE (kind, key) > ($1, $2) AND body IS NOT NULL "
    "ORDER BY 1, 2 LIMIT $3"
)
# A blob that a batch after the checkpoint names is needed to replay that batch; this also saves a blob that was named again
# after the caller worked out what to keep.
LOOSE: Final = (
    f"FROM blobs WHERE revision <= ({CHECKPOINT}) "  # noqa: S608 - a constant
    "AND NOT EXISTS (SELECT 1 FROM archive WHERE spec = digest)"
)
