"""The embedded model: a small language model that plays a shop's assistant and misbehaves when asked."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
