"""One scheduling cycle: from waiting jobs and free capacity to a plan, and from the plan to events."""
