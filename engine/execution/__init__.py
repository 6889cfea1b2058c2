"""Computes a step's logits. `ModelRunner` is the entry: it makes a batch of the step and runs the model."""
