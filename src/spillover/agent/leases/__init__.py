"""Decides what an agent does with its leases. Pure: no clock, no files, no network."""
