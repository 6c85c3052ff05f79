"""`spill demo`: a server with owned and rented machines, some forty jobs, and what becomes of them."""
