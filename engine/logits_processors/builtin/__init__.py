"""The logits processors that ship, written on what `engine.logits_processors` exports: copy one to begin.

A short name stands for an import path wherever a processor is registered: `--logits-processor bad_words`.
"""

_HERE = "engine.logits_processors.builtin"
SHORT_NAMES = {
    "forced_sequence": f"{_HERE}.forced_sequence.ForcedSequence",
}
