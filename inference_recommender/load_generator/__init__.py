"""The load generator: users in a closed loop or arrivals in an open loop, over HTTP/1.1, in a process of its own.

`python -m inference_recommender.load_generator PLAN.json --out DIR` sends the traffic, prints one JSON document per
line (started, window…, finished) and writes records.npz (intended send, send, finish and status of every request) and
summary.json (the rate, both latencies, and the load of the generator itself).
"""
