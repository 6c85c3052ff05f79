"""The worker: a pure state machine and the I/O around it."""
