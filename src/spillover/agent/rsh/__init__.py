"""Remote shells between the tasks of one gang, so that launchers such as mpirun need no ssh.

The service runs inside the tasks themselves. So what it starts has the limits of its task, and ends with it.
"""
