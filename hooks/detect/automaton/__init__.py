"""One automaton for many regular expressions: it tells where each of them may match or may become a match."""
