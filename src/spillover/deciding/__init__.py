"""Step, cycle, lanes, plan and explanation: pure."""
