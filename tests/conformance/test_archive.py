from spillover.testing.archive_suite import ArchiveSuite


class TestArchive(ArchiveSuite):
    """On every store that the fixture `opener` knows."""
