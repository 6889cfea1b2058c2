"""The rules of the guard `secrets`: keys, tokens and passwords."""
