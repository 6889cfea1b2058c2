"""What the guards of `examples/agent.yaml` change in files that a coding agent writes."""
