"""The logits processors that ship. They use only what `engine.sampling.logits_processors` exports:
copy one to begin.

A short name stands for an import path wherever a processor is registered: `--logits-processor bad_words`.
"""

_HERE = "engine.sampling.logits_processors.builtin"
SHORT_NAMES = {
    "allowed_tokens": f"{_HERE}.token_lists.AllowedTokens",
    "bad_words": f"{_HERE}.bad_words.BadWords",
    "disallowed_tokens": f"{_HERE}.token_lists.DisallowedTokens",
    "forced_sequence": f"{_HERE}.forced_sequence.ForcedSequence",
    "logit_bias": f"{_HERE}.sampling.LogitBias",
    "min_tokens": f"{_HERE}.sampling.MinTokens",
    "no_repeat_ngram": f"{_HERE}.no_repeat_ngram.NoRepeatNGram",
    "thinking_budget": f"{_HERE}.thinking_budget.ThinkingBudget",
    "watermark": f"{_HERE}.watermark.Watermark",
}
