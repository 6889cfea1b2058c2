"""The engines that Weir has, one file each; all implement `engine.protocol.Engine`."""

import os

# OpenMP reads this once, when torch is loaded. Its workers otherwise spin while they wait, on the cores that
# the event loop and all else here need: on two busy cores that made the local engine ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
