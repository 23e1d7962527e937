"""`python -m model_build init`: from a checkpoint and a file of examples to a workload's folder that needs no edit."""
