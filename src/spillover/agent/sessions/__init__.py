"""Live sessions of people with tasks: commands beside a task, its terminal, and ports of its machine."""
