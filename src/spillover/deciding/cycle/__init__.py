"""One scheduling cycle: from what waits and what is free to a plan, and from the plan to events."""
