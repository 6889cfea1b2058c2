"""A model's files: their places, and what they say of its shape and its tokenizer.

A model's name is a folder, a GGUF file, `hf://org/repo/FILE.gguf`, `ollama:NAME`, or a name on the hub.
`names` reads names and imports nothing heavy. `files` has everything that a model brings but its weights.
"""
