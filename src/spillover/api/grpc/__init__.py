"""gRPC: the service that agents call."""
