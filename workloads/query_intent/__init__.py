"""The query-intent workload: a BERT tells what a shopper's query is after, so that it can be routed."""
