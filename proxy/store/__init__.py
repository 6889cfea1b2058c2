"""What the operator of a server keeps: keys, changes, decisions."""
