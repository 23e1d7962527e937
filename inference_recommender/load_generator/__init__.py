"""The load generator: users in a closed loop or arrivals in an open loop, over HTTP/1.1, in a process of its own.

`python -m inference_recommender.load_generator PLAN.json --out DIR` sends the traffic, prints one JSON document per
line (started, window…, finished) and writes to DIR

    records.npz     every request: intended send, send, finish and status
    summary.json    the rate, both latencies, and the load of the generator itself

    plan       its input document                            process     the generator as a child process
    traffic    when users join and requests arrive           load_run    windows, stopping conditions and end of a run
    requests   the plan's requests as bytes                  summary     capacity, latencies and whether they are valid
    loops      closed and open loop: who sends when          merge       several generators' runs of one plan as one
    http       connections, and where an answer ends         self_watch  whether the generator was the bottleneck
"""
