"""Traces of the lives of jobs, for OpenTelemetry."""
