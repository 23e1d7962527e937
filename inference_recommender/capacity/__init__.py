"""Statistics of capacity: the load that a service sustains within a latency limit, with an interval. Pure.

statistics, probe    the limit, a probe and the capacity          search        the highest rate, by probing
closed_loop          the highest rate that users reached          rate_at_limit the statistics of the search
time_series          the same from CloudWatch's series
flow_equivalent      an estimate for open arrivals from users
"""
