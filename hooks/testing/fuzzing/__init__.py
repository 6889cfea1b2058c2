"""`weir hooks fuzz`: searches for a text that a hook is wrong on."""
