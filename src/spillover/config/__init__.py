"""spill.yaml: read, check, all problems at once."""
