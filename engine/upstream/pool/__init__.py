"""Several engines behind one: which replica gets a request, and what becomes of failures.

`routing` and `breaker` decide without a clock and I/O. A `replica` is an engine with its counts. `engine`
sends requests to replicas, and `health` asks how they are.
"""
