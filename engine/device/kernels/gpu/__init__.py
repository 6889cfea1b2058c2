"""Kernels for GPUs; `triton_kernels` is the entry. Experimental: so far they have run in Triton's interpreter
only, and were compiled for GPUs that were not there."""
