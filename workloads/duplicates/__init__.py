"""The duplicates workload: a BERT tells whether two sellers' listings are one product, and how alike they are."""
