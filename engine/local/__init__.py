"""The engine in this process: the thread that owns torch, and how requests reach it."""

import os

# OpenMP reads this variable once, when torch is loaded. Without it, OpenMP's workers spin while they wait,
# and take the cores that the event loop needs: on two busy cores the local engine was ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
