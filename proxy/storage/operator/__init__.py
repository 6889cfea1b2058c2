"""The operator's tables: keys, changes, decisions."""
