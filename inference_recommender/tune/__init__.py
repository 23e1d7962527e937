"""The best serving configuration within a latency limit, by one search over configurations and load."""
