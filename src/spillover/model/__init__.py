"""Values: ids, units, resources, job, cluster, reasons. Frozen, and unaware of everything above."""
