"""Parses job files, policies and other user input into the model, and reports all problems of it."""
