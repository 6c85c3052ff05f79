"""Runs the scheduler live: the loop, its controllers, and the requests of people and agents."""
