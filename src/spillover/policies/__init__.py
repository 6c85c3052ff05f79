"""Built-in policies, one module each."""
