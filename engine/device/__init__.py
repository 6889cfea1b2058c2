"""The device that models run on: how much memory it has, how models share it, and whether it is lost."""
