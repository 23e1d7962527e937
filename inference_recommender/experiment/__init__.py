"""The published experiment: every variant on every instance type, measured as one plan, ending in one table.

cells              what is measured: variant × instance type. Pure
plan               the cells that are left → batches of one variant, at most ten instance types each. Pure
images             the container image of each kind of hardware
resources          a batch's model and a cell's endpoint, as requests. Pure
measure            runs every batch, by a job of Inference Recommender or, in `by_load_test`, by our own generator
account, aws       the port to AWS, and its adapter
folder             what an experiment keeps, and where a resumed one goes on
result             measurements → rows: fleet, cost, Pareto front, ratios to a baseline. Pure
page, plots        one self-contained HTML page, drawn from the folder alone
terminal           the table on stdout
"""
