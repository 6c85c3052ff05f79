"""Builders, harnesses and conformance suites for tests."""
