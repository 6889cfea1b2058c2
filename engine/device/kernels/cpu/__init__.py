"""Kernels for CPUs in C. `native_library` loads those that a wheel brings, or compiles them at first use."""
