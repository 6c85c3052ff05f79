"""What waits: jobs in lanes, in the order in which cycles try them, kept up with every event."""
