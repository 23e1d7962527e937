"""The load generator: users in a closed loop or arrivals in an open one, over HTTP/1.1, in a process of its own.

`python -m inference_recommender.load_generator PLAN.json --out DIR` sends the traffic, prints one JSON document per
line (started, window…, finished) and leaves in DIR

    records.npz     every request: intended send, send and finish, status
    timeline.npz    the same by second and latency bin, small, and made to be merged
    summary.json    the rate, both latencies, and what it knows of its own limits

    plan           what is asked for, as a document            process    it as a child process, for whoever starts it
    outgoing       the plan's requests as bytes                merge      several runs of one plan as one
    closed_loop,
    open_loop      when they are sent                          self_watch, calibration   was it in its own way?

It knows nothing of prices or instance types, and of AWS only the shapes of a job's TrafficPattern and
StoppingConditions and how a request to a SageMaker endpoint is signed.
"""
