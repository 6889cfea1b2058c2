"""Settings made real: engines, pipelines, policies. A reload swaps one `Deployment` for another."""
