"""The guard service: other gateways have the hooks judge their texts, each by its own protocol.

Nothing imports this package but the seam (`proxy.http.optional`): without it, everything else works.
"""
