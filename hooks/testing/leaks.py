"""Finds a text in anything that a client gets: texts, tokens, top alternatives, tools' names, reasons."""

from collections.abc import Iterator, Sequence

from engine.protocol import Delta, Token


def find(secret: str, deltas: Sequence[Delta]) -> str | None:
    """The first place where `secret` shows, in words; None: nowhere."""
    return next(_places(secret, deltas), None)


def _places(secret: str, deltas: Sequence[Delta]) -> Iterator[str]:
    texts: dict[tuple[int, str, int | None], str] = {}
    for delta in deltas:
        call = delta.tool_call
        key = delta.index, delta.channel, call.index if call else None
        texts[key] = texts.get(key, "") + delta.text
        if call and secret in call.name:
            yield f"a tool's name, output {delta.index}"
        if secret in str(delta.stop_reason or ""):
            yield f"the stop_reason, output {delta.index}"
    for (index, channel, _), text in texts.items():
        if secret in text:
            yield f"the text of {channel}, output {index}"
    raw = secret.encode()
    for index in sorted({delta.index for delta in deltas}):
        tokens = [token for delta in deltas if delta.index == index for token in delta.tokens]
        if secret in "".join(token.text for token in tokens):
            yield f"the tokens' texts, output {index}"
        if raw in b"".join(token.raw for token in tokens):
            yield f"the tokens' bytes, output {index}"
        if _is_spelt(raw, tokens):
            yield f"the top alternatives, output {index}"


def _is_spelt(secret: bytes, tokens: Sequence[Token]) -> bool:
    """Whether some choice of each token or one of its alternatives spells `secret`."""
    begun: set[int] = set()  # lengths of the secret's beginnings that the tokens so far can end in
    for token in tokens:
        now: set[int] = set()
        for piece in {token.raw, *(top.raw for top in token.top)}:
            if secret in piece:
                return True
            for length in begun:
                rest = secret[length:]
                if piece.startswith(rest):
                    return True
                if rest.startswith(piece):
                    now.add(length + len(piece))
            now.update(n for n in range(1, len(piece) + 1) if secret.startswith(piece[-n:]))
        begun = now
    return False
