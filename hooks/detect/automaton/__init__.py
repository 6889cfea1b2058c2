"""Regular expressions for streams: their analysis, and one automaton that finds where any may match."""
