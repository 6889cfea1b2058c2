"""Who may ask, how much, and how long."""
