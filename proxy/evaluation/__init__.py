"""Labelled exchanges, played through guards, and what the guards made of them."""
