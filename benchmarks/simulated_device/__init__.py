"""Measures what the host costs a GPU: the real engine and service on a simulated device."""
