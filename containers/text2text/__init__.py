"""The Triton model of the text2text workloads: `TEXT` in, `CORRECTED` out.

`python -m model_build` copies the modules of this folder, as plain files, into the model's version folder, where Triton
imports them as the package `1`. That is why they import each other relatively.
"""
