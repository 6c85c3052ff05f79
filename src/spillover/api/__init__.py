"""Serves HTTP and gRPC: decodes requests, calls control, encodes answers."""
