"""The encoder tasks: a BERT with a head exported, traced, compiled and compared with its original."""
