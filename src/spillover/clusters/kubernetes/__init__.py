"""Clusters of Kubernetes: what is there is watched, and each attempt is one `batch/v1` Job."""
