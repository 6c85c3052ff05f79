"""Builders, harnesses and conformance suites for tests, also for authors of plugins."""
