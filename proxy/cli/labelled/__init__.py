"""Labelled exchanges, as `weir eval-guard` and `weir probe` read them."""
