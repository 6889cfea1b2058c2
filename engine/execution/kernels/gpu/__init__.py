"""Kernels for GPUs. Experimental: so far they have run in Triton's interpreter only, and were compiled for
GPUs that were not there. `triton_kernels` and `triton_attention` are the entries.
"""
