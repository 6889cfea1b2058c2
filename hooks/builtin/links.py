"""Addresses that are not of a list of hosts, in answers and in tools' arguments: `--hook links`.

An address can carry a conversation to a stranger: a client fetches the image `![](https://host/?q=...)` as
soon as it shows it. The guard finds addresses in Markdown, HTML, CSS, other markup and plain text. It holds
an address until its end, so that no client gets a part of one that does not pass.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, Unpack

from pydantic import Field

from hooks import Chunk, Verdict, checked, emit
from hooks.builtin.link_rules.carried import Carried
from hooks.builtin.link_rules.detector import LinkDetector
from hooks.builtin.link_rules.policy import Carries, Policy
from hooks.detect.acting_guard import Options
from hooks.detect.detector import Match
from hooks.detect.excerpt import Excerpt
from hooks.detect.readings import ADDRESSES, Reader
from hooks.detect.span_guard import SpanGuard


class _LinkGuard(SpanGuard):
    """Acts on the addresses that a policy does not let pass."""

    def __init__(self, policy: Policy, carries: Carries | None, **options: Unpack[Options]) -> None:
        super().__init__(Reader(LinkDetector(partial(policy.passes, carries=carries)), ADDRESSES), **options)

    def _places(
        self, matches: list[Match], text: str, excerpt: Excerpt, template: str
    ) -> list[tuple[int, int, str, str]]:
        """The destination of a link or an image in Markdown becomes empty, so that the label stays. Any other
        address leaves a mark: without it, the texts around the address could make another one."""
        places = super()._places(matches, text, excerpt, template or "\u2026")
        ends: dict[int, int] = {}
        for match in matches:
            ends[match.start] = max(match.end, ends.get(match.start, 0))
        # A match that begins later may be found later: what takes its place does not depend on it.
        return [
            (start, end, "" if _is_in_link(text, start, ends.get(start, end)) else new, entity)
            for start, end, new, entity in places
        ]


class Links(_LinkGuard):
    """Finds addresses that are not of a list of hosts, or that carry text of the prompt."""

    thread_safe = True

    @checked
    def __init__(
        self,
        *,
        allow: Sequence[str] = (),
        schemes: Annotated[Sequence[str], Field(min_length=1)] = ("http", "https", "mailto"),
        relative: bool = True,
        carries: Annotated[int, Field(ge=8)] | None = 32,
        when: Literal["always", "tainted"] = "always",
        **options: Unpack[Options],
    ) -> None:
        """`allow`: the hosts whose addresses pass: `example.org`, `*.example.org` for all names below it,
        `example.org:8443`, `example.org/docs` for the addresses below a path, or `*` for any host. Without a
        port, only the scheme's own port passes. `schemes`: the schemes that pass. `relative`: whether
        addresses without a host pass, such as `/docs`.

        `carries`: an address does not pass if the part after its host has so many letters and digits in a
        row of the prompt, also in escapes and in common codings such as base64. None: it may.

        `when`: `tainted` acts only on answers to requests that a guard marked because a stranger's text is in
        them (`prompt: taint`).

        Raises `ValueError` for an entry of `allow` that is no host.
        """
        policy = Policy(allow, schemes, relative=relative)
        super().__init__(policy, None, **options)
        self._carries = carries
        self._only_tainted = when == "tainted"
        self._for = partial(_LinkGuard, policy, **options)

    def __call__(self, chunk: Chunk) -> Verdict:
        if self._only_tainted and chunk.request.taint is None:
            return emit(chunk.pending)
        if self._carries is None:
            return super().__call__(chunk)
        guard: _LinkGuard | None = chunk.request_state.get("guard")
        if guard is None:
            carried = Carried(chunk.request, self._carries, chunk.caller_values)
            guard = chunk.request_state["guard"] = self._for(carried)
        return guard(chunk)


def _is_in_link(text: str, start: int, end: int) -> bool:
    """Whether the place is all that is between the parentheses of a link in Markdown."""
    return text[end : end + 1] == ")" and text[max(0, start - 64) : start].rstrip(" \t\n").endswith("](")
