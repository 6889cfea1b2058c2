"""`weir hooks check`: runs a hook on recordings that are cut at every place."""
