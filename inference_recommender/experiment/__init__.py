"""The published experiment: every variant on every instance type, measured as one plan, ending in one table.

cells            what is to be measured: variant × instance type. Pure
plan             the cells that are left → batches of one variant, at most ten instance types each. Pure
run              every batch: `by_job` of Inference Recommender, or `by_harness` on endpoints made for its cells;
                 knows AWS by the port in `account` alone; `aws` is its one adapter
folder           what an experiment keeps, and where the next start goes on from
result           measurements → rows: fleet, cost, Pareto front, ratios to a baseline. Pure
page, plots      one self-contained HTML page; `conclude` draws it from the folder alone
instance_shape   vCPUs, memory, GPUs and chips of an instance type
"""
