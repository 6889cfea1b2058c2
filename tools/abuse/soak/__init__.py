"""Mixed traffic for hours, while things break: `make soak`."""
