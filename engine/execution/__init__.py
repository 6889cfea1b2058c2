"""From a scheduled step to logits: batches, attention, the key-value cache, models and kernels."""
