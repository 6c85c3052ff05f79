"""Plans which machines of pools to order, to drain and to end."""
