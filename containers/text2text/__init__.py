"""The Triton model of the text2text workloads: takes `TEXT`, returns a text.

`python -m model_build` copies modules of this folder, as plain files, into the model's version folder, where Triton
imports them as the package `1`. That is why they import each other relatively.
"""
