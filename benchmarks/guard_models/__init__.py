"""Benchmarks of guards that are models, beside the model that they guard."""
