"""Kernels in C, compiled at first use."""
