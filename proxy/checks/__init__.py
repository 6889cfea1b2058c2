"""The checks of `weir config check`: all that is wrong with a settings file, found without serving it."""
