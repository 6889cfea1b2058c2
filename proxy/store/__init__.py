"""The store of a server's operator: keys, changes, decisions."""
