"""What readers of an answer fetch and link, and texts to try them with: the oracle of the guard `links`."""
