"""The load generator: users in a closed loop or arrivals in an open loop, over HTTP/1.1, in a process of its own.

`python -m inference_recommender.load_generator PLAN.json --out DIR` sends the traffic, prints one JSON document per
line (started, window…, finished) and writes to DIR

    records.npz     every request: intended send, send, finish and status
    summary.json    the rate, both latencies, and the load of the generator itself

    plan       its input document, users and arrivals        process     the generator as a child process
    requests   the plan's requests as bytes                  load_run    windows, stopping conditions and end of a run
    loops      closed and open loop: who sends when          summary     capacity, latencies and whether they are valid
    http       connections, and where an answer ends         self_watch  whether the generator was the bottleneck
"""
