from spillover.testing.audit_suite import AuditSuite


class TestAudit(AuditSuite):
    """On every store that the fixture `opener` knows."""
