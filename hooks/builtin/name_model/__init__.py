"""The small model of the guard `names`: words, lists, features and weights. README.md is its model card."""
