"""The decisions of one request in its own answer, for the operator who asks for them (contract 8.14).

A stream has events of their own: `weir.decision` just before the events that follow from the decision, and
`weir.held` when the number of characters that a hook holds has changed. A whole answer has a field.
"""

from aiohttp import web

from proxy.http.access.operator import has_admin_key, is_operator
from proxy.wire.answer_decisions import AnswerDecisions
from proxy.wire.errors import APIError

HEADER = "X-Weir-Decisions"


def asked_decisions(http: web.Request) -> AnswerDecisions | None:
    """The decisions to put into the answer; None if the request asks for none. Raises `APIError` 403 if it
    asks and is not the operator's, and 400 for another value of the header."""
    given = http.headers.get(HEADER)
    if given is None or (value := given.strip().lower()) == "false":
        return None
    if value != "true":
        raise APIError(400, f"{HEADER}: the value is true or false.", param=HEADER)
    if not is_operator(http):
        told = f"{HEADER}: only the operator of this server is told what its hooks decide."
        raise APIError(403, told, "permission_error", param=HEADER)
    decisions = http[ANSWER_DECISIONS] = AnswerDecisions(with_text=has_admin_key(http))
    return decisions


ANSWER_DECISIONS = web.RequestKey("answer_decisions", AnswerDecisions)
"""An error's answer finds here the decisions that led to it."""
