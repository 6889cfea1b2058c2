"""A release: packages that are built twice to the same bytes, and what says where they come from."""
