"""Checks of `spill doctor` on a data folder, with or without a running server, and on a server. They never write."""
