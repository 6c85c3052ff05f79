"""One module for each family of events: `apply` looks here."""
