"""Simulates a fleet under autoscaling on a trace of traffic: minutes over the objective, late requests, cost.

`trace` and `shapes` make the load, `curve` says how late an instance answers under it, `tracking` decides as
Application Auto Scaling does, `fleet` starts and stops instances as SageMaker or ECS does, and `simulation` puts a
trace through them, step by step. `seeds` runs many seeds in parallel, `result` makes a document of them, and
`kept` the folder that `report` draws. All of it
is pure and depends on the seed alone, but for the processes of `seeds`.
"""
