"""Where lists of jobs come from: one module for each format, and one that makes them up."""
