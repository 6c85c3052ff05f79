"""What `spill doctor` looks at: a data folder, whether or not a server runs on it, and a server that runs. Nothing here writes."""
