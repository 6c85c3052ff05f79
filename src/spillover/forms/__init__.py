"""What people write, read into the model."""
