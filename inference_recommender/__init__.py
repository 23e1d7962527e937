"""Takes a workload from its objective to an instance count: job, load, capacity, size, report."""
