"""AgentDojo's tasks and attacks through a policy of `tools`, without a model: `make bench NAME=agents`."""
