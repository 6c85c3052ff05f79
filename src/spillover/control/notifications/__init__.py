"""Decides who is told of what, and how messages look. Controllers store and send them."""
