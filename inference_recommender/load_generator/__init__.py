"""The load generator: users in a closed loop or arrivals in an open one, over HTTP/1.1, in a process of its own.

`python -m inference_recommender.load_generator PLAN.json --out DIR` sends the traffic, prints one JSON document per
line (started, window…, finished) and leaves in DIR

    records.npz     every request: intended send, send and finish, status
    timeline.npz    the same counted by second and latency bin: small, and made to be merged
    summary.json    the rate, both latencies, and the limits of the generator itself

    plan       the document that it is given              process     the generator as a child process of its caller
    traffic    when users join and requests arrive        load_run    the run: windows, stopping conditions, its end
    requests   the plan's requests as bytes               summary     capacity and latencies, and whether they hold
    loops      closed and open loop: who sends when       merge       several generators' runs of one plan as one
    http       connections, and where an answer ends      self_watch  whether the generator was its own bottleneck

It knows nothing of prices or instance types. Of AWS it knows the shapes of a job's TrafficPattern and
StoppingConditions and how a request to a SageMaker endpoint is signed.
"""
