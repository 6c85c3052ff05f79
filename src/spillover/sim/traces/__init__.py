"""Reads traces, one module for each format, and generates synthetic ones."""
