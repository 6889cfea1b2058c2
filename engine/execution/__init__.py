"""Computes a scheduled step's logits: batches, attention, the key-value cache, models and kernels.

`model_runner` is the entry. It makes a `layout` and a `batch` of the step, and runs a model from `models`,
whose operators come from `kernels`.
"""
