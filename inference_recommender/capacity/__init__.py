"""The statistics of capacity: what load a service bears within a latency limit, and how surely.

All of it is pure: arrays and ports in, values out. It imports nothing of ours but the contract (`workloads`).

    closed_loop   the highest rate that a run sustained     search       the highest rate of arrivals, by probing
    time_series   the same from a job's CloudWatch series   compare      whether a candidate is slower than a baseline
"""
