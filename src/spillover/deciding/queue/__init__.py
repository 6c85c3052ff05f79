"""The queue: waiting jobs in lanes, in the order in which cycles try them, updated with every event."""
