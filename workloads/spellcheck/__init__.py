"""The spelling-correction workload: a T5 turns a misspelt product-search query into the intended one."""
