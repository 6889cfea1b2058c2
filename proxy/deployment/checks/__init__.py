"""What `weir config check` finds wrong with settings."""
