"""`weir serve --reasoning-parser plan`: what a model writes between <plan> and </plan> is reasoning."""

from engine.parsers import Markers

PLAN = Markers(start=("<plan>",), end=("</plan>",))
