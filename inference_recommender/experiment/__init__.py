"""The published experiment: every variant on every instance type, measured as one plan, in one table."""
