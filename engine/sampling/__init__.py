"""From logits to tokens: sampling, speculation, beam search."""
