"""`weir hooks check`: a hook on recordings, cut at every place."""
