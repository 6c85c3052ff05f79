"""Policies for Spillover: small jobs first, and waits in two steps."""
