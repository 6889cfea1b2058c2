"""`weir eval-guard`: guards measured on labelled texts."""
