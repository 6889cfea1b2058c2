"""How to install what only an extra of the distribution brings."""


def how_to_install(extra: str) -> str:
    """The distribution is on no package index, so pip finds it in a checkout alone."""
    return f"install the extra '{extra}' of weir-proxy (in a checkout: pip install '.[{extra}]')"
