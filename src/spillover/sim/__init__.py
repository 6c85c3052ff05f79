"""The simulator: the engine of the live server on a virtual clock, fed with a list of jobs from a trace."""
