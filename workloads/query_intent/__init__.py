"""The query-intent workload: a BERT tells the intent of a shopper's query, so that it can be routed."""
