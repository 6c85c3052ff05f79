"""The cluster kind `kubernetes`: watches a cluster, and runs each attempt as one Job of `batch/v1`."""
