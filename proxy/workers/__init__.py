"""All cores of a machine: one process that supervises, and processes that serve."""
