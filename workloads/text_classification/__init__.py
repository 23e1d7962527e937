"""The text-classification workload: a BERT tells whether a product review is positive or negative."""
