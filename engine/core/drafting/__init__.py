"""Guesses at the next tokens, checked by the model in the next step."""
