"""Probes: small classifiers of the served model's activations."""
