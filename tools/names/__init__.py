"""Training of the model of the guard `names`: lists, drawn texts, prose, weights."""
