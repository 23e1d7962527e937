"""From a workload's objective to an instance count: the job, the load, the capacity, the size, the report."""
