"""The command line, `spill`."""
