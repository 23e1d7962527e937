"""The question-answering workload: a BERT finds the answer to a shopper's question in a product's description."""
