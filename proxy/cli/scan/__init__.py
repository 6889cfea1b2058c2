"""`weir scan`: what guards find in files."""
