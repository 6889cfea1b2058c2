"""OpenAI's APIs, and those of the same family."""
