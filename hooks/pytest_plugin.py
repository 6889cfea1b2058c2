"""The pytest plugin's earlier place, for environments installed before it moved to `pytest_weir`."""

from pytest_weir import weir_play, weir_stream

__all__ = ["weir_play", "weir_stream"]
