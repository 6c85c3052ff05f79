"""Runs studies: sweeps over policies, and back-tests of real history."""
