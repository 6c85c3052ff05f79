"""Stories of a pool on a virtual clock, with an account whose answers fail in every way."""
