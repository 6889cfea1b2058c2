"""Names of tools and arguments, as programs compare them that do not compare them exactly."""

import unicodedata


def folded(name: str) -> str:
    """The name without differences of case, of compatible characters, and of characters that nobody sees."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in plain if not (char.isspace() or unicodedata.category(char)[0] == "C"))
