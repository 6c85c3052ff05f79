"""Holds queries of the journal that are the same for SQLite and PostgreSQL."""

from typing import Final

# If everything was compacted, the journal ends at the revision up to which it was.
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
AUDITED: Final = "SELECT value FROM meta WHERE name = 'audited'"
NOTED: Final = "SELECT value FROM meta WHERE name = 'noted'"
COUNT: Final = "SELECT count(*) FROM records"
# Some records after a kind and a key, in order.
RECORDS: Final = (
    "SELECT kind, key, body FROM records WHERE (kind, key) > ($1, $2) ORDER BY kind, key LIMIT $3"
)
# While staged records of the last checkpoint are being moved to their place, both tables count.
OVERLAID: Final = (
    "SELECT kind, key, body FROM records WHERE (kind, key) > ($1, $2) "
    "AND NOT EXISTS (SELECT 1 FROM staged WHERE staged.kind = records.kind AND staged.key = records.key) "
    "UNION ALL SELECT kind, key, body FROM staged WHERE (kind, key) > ($1, $2) AND body IS NOT NULL "
    "ORDER BY 1, 2 LIMIT $3"
)
# Replaying a batch after the checkpoint needs the blobs that it names. This also protects a blob that was named again
# after the caller decided what to keep.
LOOSE: Final = (
    f"FROM blobs WHERE revision <= ({CHECKPOINT}) "  # noqa: S608 - a constant
    "AND NOT EXISTS (SELECT 1 FROM archive WHERE spec = digest)"
)
SECRET: Final = "SELECT key, body FROM secrets WHERE project = $1 AND name = $2 AND version = $3"  # noqa: S105 - no secret
SECRETS: Final = "SELECT project, name, version, key FROM secrets ORDER BY project, name, version"
_MESSAGE: Final = "SELECT id, channel, recipient, project, at, body, due, tries, failed, error FROM outbox"
NEXT_MESSAGES: Final = (
    f"{_MESSAGE} WHERE failed = 0 AND channel = $1 AND (at, id) > ($2, $3) ORDER BY at, id LIMIT $4"
)
# Each of the first two parameters is -1 for all; the others name a message that comes before the first one.
MESSAGES: Final = (
    f"{_MESSAGE} WHERE (CAST($1 AS bigint) < 0 OR failed = $1) AND (CAST($2 AS bigint) < 0 OR (at, id) < ($2, $3)) "
    "ORDER BY at DESC, id DESC LIMIT $4"
)
MESSAGES_BY_ID: Final = f"{_MESSAGE} WHERE id = $1"
# Two counts, each from an index, so that no body is read.
WAITING_MESSAGES: Final = (
    "SELECT channel, sum(waiting), sum(failed) FROM ("
    "SELECT channel, count(*) AS waiting, 0 AS failed FROM outbox WHERE failed = 0 GROUP BY channel UNION ALL "
    "SELECT channel, 0 AS waiting, count(*) AS failed FROM outbox WHERE failed = 1 GROUP BY channel"
    ") AS counted GROUP BY channel ORDER BY channel"
)
OLD_MESSAGES: Final = "SELECT id FROM outbox WHERE failed = 1 AND due < $1 LIMIT $2"
# Failed messages beyond the newest ones.
MORE_MESSAGES: Final = "SELECT id FROM outbox WHERE failed = 1 ORDER BY at DESC, id DESC LIMIT $1 OFFSET $2"
