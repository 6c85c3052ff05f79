"""Live sessions at the prompt."""
