"""Between token ids and text: the tokenizer, the detokenizer, stop strings."""
