"""The embedded models: one that plays a shop's assistant and misbehaves when asked, and small ones that judge
what it says."""

from pathlib import Path

_HERE = Path(__file__).parents[1] / "models" / "demo"
MODEL_DIR = _HERE / "model"
STREAM_GUARD_DIR = _HERE / "guards" / "stream"
"""A model in the shape of Qwen3Guard-Stream, which judges each token."""
GENERATIVE_GUARD_DIR = _HERE / "guards" / "generative"
"""A model that writes a verdict in the form of Qwen3Guard-Gen."""
GUARDS = {"weir-demo-stream-guard": STREAM_GUARD_DIR, "weir-demo-guard": GENERATIVE_GUARD_DIR}
"""The guard models that ship, by the names that hooks may use."""
DEMO_PROBE = _HERE / "guards" / "secrets.safetensors"
"""A probe of the demo model."""
PROBES = {"weir-demo-probe": str(DEMO_PROBE)}
"""The probes that ship, by the names that settings may use."""
