"""Results of simulations as numbers, tables and pictures."""
