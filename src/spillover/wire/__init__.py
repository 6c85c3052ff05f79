"""Versioned serialised forms."""
