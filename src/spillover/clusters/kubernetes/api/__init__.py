"""Client of the Kubernetes API server: requests, objects, watches and credentials."""
