"""The model of the guard `injection`: features of a text, their weights, and the text's readings."""
