"""The log of the guard `audit`: the records, the thread that writes them, and the file or table."""
