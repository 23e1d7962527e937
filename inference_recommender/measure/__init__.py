"""Measures a workload: a job or the load generator, then an estimate, an optional open-loop search and a decision."""
