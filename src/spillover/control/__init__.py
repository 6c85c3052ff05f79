"""The live loop: engine, journal and gate."""
