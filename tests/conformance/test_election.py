from spillover.testing.election_suite import ElectionSuite


class TestElection(ElectionSuite):
    """On every store that the fixture `opener` knows."""
