"""`weir replay`: recorded answers, vetted again."""
