"""Creates, observes and ends attempts as Jobs of `batch/v1`."""
