"""The pool's own routing, retries and breakers over simulated replicas, in simulated time.

`traffic` makes chats. A `server` is one replica: its times, its prefix cache and its failures. `simulation`
brings both together through the pool's code, and `__main__` prints tables.
"""
