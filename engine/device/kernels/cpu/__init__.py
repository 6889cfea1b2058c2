"""Kernels for CPUs in C. `native_library` compiles them at first use, where there is a compiler."""
