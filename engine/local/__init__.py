"""The engines: a module or a package for each. All implement `engine.protocol.Engine`.

`local` runs a model in this process, `openai` asks another server, `replay` plays recordings, `echo` returns
the prompt, and `recorder` writes another engine's answers to files.
"""

import os

# OpenMP reads this variable once, when torch is loaded. Without it, OpenMP's workers spin while they wait,
# and take the cores that the event loop needs: on two busy cores the local engine was ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
