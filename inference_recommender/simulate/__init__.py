"""Simulates a fleet under autoscaling on a traffic trace: minutes over the objective, late requests, cost.

`trace` and `shapes` make the traffic, `curve` gives the late share of an instance by its load, `tracking` decides as
Application Auto Scaling does, `instances` starts and stops instances, and `simulation` combines them step by step.
`seeds` runs many seeds in parallel, `policy_search` looks for a cheaper policy, and `simulation_file` keeps the result.
"""
