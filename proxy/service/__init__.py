"""The service, its requests, quotas, rates, reload, and its peers in other processes."""
