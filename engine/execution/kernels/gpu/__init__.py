"""Kernels for GPUs. Experimental.

They have run in Triton's interpreter and compiler only, not on a GPU yet.
"""
