"""Regular expressions for streams: their analysis, and one automaton that tells where any may match."""
