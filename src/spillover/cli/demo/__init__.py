"""`spill demo`: runs some forty jobs on a server with owned and rented machines, and shows what happens."""
