"""One way to talk to a database, whichever it is."""
