"""`weir hooks fuzz`: the search for a text that a hook is wrong on."""
