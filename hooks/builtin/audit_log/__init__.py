"""The log of the guard `audit`: records, the thread that writes them, and the places they go to."""
