"""HTTP and gRPC: decode, call control, encode."""
