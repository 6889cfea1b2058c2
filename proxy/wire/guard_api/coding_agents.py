"""A coding agent's tool call before it runs: the hook `PreToolUse` of Claude Code and of Codex.

A call that passes gets an answer without a decision, so that the agent's own rules for permissions decide. An
error denies the call, with status 200: the agents take any other answer for a hook that failed, and go on.
"""

from collections.abc import Mapping
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict

from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import Check, CheckedCall, JSONObject, Judgement, Question


class PreToolUse(Question):
    """Judge a tool call before it runs (coding agents). Fields that are not here hold nothing that the tool
    gets."""

    model_config = ConfigDict(strict=True)

    hook_event_name: Literal["PreToolUse"]
    tool_name: str
    tool_input: JSONObject

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        return Check(calls=[CheckedCall(self.tool_name, orjson.dumps(self.tool_input).decode())])

    def answer(self, check: Check, judged: Judgement) -> JSONObject:
        if judged.blocked is None and not judged.changed_call(check):
            return {}
        return _denied(f"A guardrail refuses this call: {judged.blocked or ', '.join(_reasons(judged))}")


class _Decision(BaseModel):
    hookEventName: Literal["PreToolUse"]
    permissionDecision: Literal["deny"]
    permissionDecisionReason: str


class PreToolUseAnswer(BaseModel):
    """With a decision, the agent does not run the call."""

    hookSpecificOutput: _Decision | None = None


def _reasons(judged: Judgement) -> list[str]:
    """Each reason once. A hook that gives none at all is named instead."""
    findings = [one for part in judged.all for one in part.findings]
    explained = {one.hook for one in findings if one.reason}
    reasons = (one.reason or one.hook for one in findings if one.reason or one.hook not in explained)
    return [*dict.fromkeys(reasons)]


def _denied(reason: str) -> JSONObject:
    decision = _Decision(
        hookEventName="PreToolUse", permissionDecision="deny", permissionDecisionReason=reason
    )
    return PreToolUseAnswer(hookSpecificOutput=decision).model_dump()


ERROR = "200", PreToolUseAnswer
PATHS = {"/v1/hooks/claude-code": PreToolUse, "/v1/hooks/codex": PreToolUse}


def key(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key")


def error(failure: APIError) -> tuple[int, Any, Mapping[str, str]]:
    return 200, _denied(failure.message), {}
