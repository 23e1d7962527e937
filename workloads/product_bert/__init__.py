"""Code and files that the BERT workloads share. This folder is not a workload and has no workload.toml.

`checkpoint/` is the backbone of `query_intent` and `duplicates`, stored here once; each of the two keeps only its head.
`workloads.duplicates.train` writes it. The modules are the template language of the grammars (`phrasing`), the
tokenizers (`word_pieces`), and the training of encoders and heads (`training`, the only one that needs torch).
"""
