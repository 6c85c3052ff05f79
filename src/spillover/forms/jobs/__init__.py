"""Reads jobs from job files, scripts, options and Kubernetes manifests, and writes them back."""
