from spillover.testing.secrets_suite import SecretsSuite


class TestSecrets(SecretsSuite):
    """On every store that the fixture `opener` knows."""
