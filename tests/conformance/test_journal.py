from spillover.testing.journal_suite import JournalSuite


class TestJournal(JournalSuite):
    """On every store that the fixture `opener` knows."""
