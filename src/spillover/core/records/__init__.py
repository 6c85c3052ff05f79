"""The records of the state: jobs, tasks, nodes, clusters, money."""
