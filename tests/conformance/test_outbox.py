from spillover.testing.outbox_suite import OutboxSuite


class TestOutbox(OutboxSuite):
    """On every store that the fixture `opener` knows."""
