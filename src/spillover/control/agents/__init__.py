"""The server's side of agents: registrations, heartbeats, reports and leases."""
