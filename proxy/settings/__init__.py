"""What an operator may set: every option, models, policies, keys. Imports nothing else of `proxy`."""
