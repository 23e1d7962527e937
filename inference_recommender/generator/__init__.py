"""The load generator: closed-loop users against one KServe v2 HTTP endpoint, in a process of its own.

`python -m inference_recommender.generator PLAN.json --out DIR` sends the traffic, prints one JSON document per line
(started, window…, finished) and leaves records.npz and summary.json in DIR. It knows nothing of AWS but the shapes of
a job's TrafficPattern and StoppingConditions, and nothing of prices or instance types.
"""
