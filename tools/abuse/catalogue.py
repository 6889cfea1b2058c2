"""The catalogue: every attack and every check, by name. It imports the modules that add them."""

from tools.abuse import bodies, connections, greed, services
from tools.abuse.attack import ATTACKS
from tools.abuse.checks import CHECKS

__all__ = ["ATTACKS", "CHECKS", "bodies", "connections", "greed", "services"]
