"""What the state learns from ended jobs: runtimes, and the usage of each project."""
