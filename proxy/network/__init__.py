"""Sockets: listeners, TLS, clients' addresses, and deadlines of slow clients."""
