"""Text of models, callers and servers, made harmless for a terminal."""

_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    ord("\r"): None,
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    # Embeddings, overrides and isolates: they reverse the text after them, also text that is not theirs.
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"),
}


def harmless(text: str) -> str:
    """The text with visible signs in place of control characters, and of those that reverse text. Ends of
    lines and tabs stay.

    A terminal obeys control characters. They can write the clipboard, and hide text on the screen.
    """
    return text.translate(_CONTROLS)
