"""The settings of an operator: every option, models, policies, keys. Imports nothing else of `proxy`."""
