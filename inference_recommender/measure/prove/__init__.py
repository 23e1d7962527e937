"""Proves that a recommended fleet keeps its objective, with open-loop arrivals at each instance's share of the load.

loads                the rates: at the peak, and after the loss of an instance or a zone. Pure
percentile_interval  late requests against the number allowed, and the percentile's interval. Pure
sequential           the test of the limit at one rate; it ends as soon as its verdict is clear. Pure
proving              the plan of a proof, its loads one after another, and the verdict. Pure
checks               checks before a proof: recommendation, archive, instance type and count, endpoint lifetime
"""

PROOF = "proof.json"
"""The file with the proof, in its run folder."""
