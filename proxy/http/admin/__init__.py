"""The operator's endpoints: keys, running requests, decisions, reload."""
