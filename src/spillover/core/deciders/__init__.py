"""One module for each family of proposals: `decide` looks here."""
