"""What the operator keeps: keys, changes, decisions."""
