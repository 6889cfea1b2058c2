"""`weir chat`: a dialogue in a terminal."""
