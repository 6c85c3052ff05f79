"""Runs tasks on one machine for a server. A pure state machine decides, and the I/O around it acts."""
