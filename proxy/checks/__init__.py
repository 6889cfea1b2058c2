"""What `weir config check` looks at: all that is wrong with a settings file, found without serving it."""
