"""The best configuration of a model server under a latency limit, by one search over configurations and load.

space      `[tune]` and the machine → the configurations, and which were left out and why. Pure
evidence   what the probes of one configuration say of its capacity. Pure
race       the search: bounds, screening, rounds of halving. Pure: a `Probe` is its one port
result     what the search found, in numbers, in words, and as a patch of workload.toml. Pure
folder     every probe as it was made; a search that was interrupted goes on from there
triton     the port's adapter: one Triton whose models are loaded anew with another configuration
"""
