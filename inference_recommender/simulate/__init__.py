"""Simulates a fleet under autoscaling on a traffic trace: minutes over the objective, late requests, cost."""
