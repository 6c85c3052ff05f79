"""Formats of files, the HTTP API, gRPC and the journal, each with a version."""
