"""Controllers: loops that do one kind of work in the background, one in each module."""
