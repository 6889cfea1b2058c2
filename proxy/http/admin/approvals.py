"""`/admin/approvals`: the tool calls that wait for a person, in all processes that serve."""

from typing import Annotated

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from proxy.http.access.operator import admin_name, has_admin_key, log_change
from proxy.http.admin.wire import answer, listing, number, read
from proxy.service.approvals import AnswerCall, ListCalls, OldestCalls, PersonsAnswer
from proxy.service.service import SERVICE
from proxy.storage.records import Change
from proxy.wire.errors import APIError


class AnswerFields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    approve: StrictBool
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """The call's digest, as the list has it."""


async def list_approvals(http: web.Request) -> web.Response:
    """The oldest calls, at most `limit`, and the number of all. The calls themselves need the admin key."""
    service, limit = http.config_dict[SERVICE], number(http, "limit", 100, 1000)
    found: list[OldestCalls] = [service.approvals.oldest(limit), *await service.peers.ask(ListCalls(limit))]
    calls = sorted((call for one in found for call in one.oldest), key=lambda call: call.asked)
    with_call = has_admin_key(http)
    data = [call.public(with_call=with_call) for call in calls[:limit]]
    return listing(data, num_waiting=sum(one.num_waiting for one in found))


async def answer_approval(http: web.Request) -> web.Response:
    """Approve or refuse a call. Raises `APIError` 404 for one that does not wait, 409 for another digest."""
    service, call_id = http.config_dict[SERVICE], http.match_info["id"]
    name, fields = admin_name(http), await read(http, AnswerFields)
    person = PersonsAnswer(fields.approve, name)
    answers = [service.approvals.answer(call_id, fields.digest, person)]
    if answers == ["unknown"]:
        answers = await service.peers.ask(AnswerCall(call_id, fields.digest, person))
    if "other digest" in answers:
        raise APIError(409, "The digest is that of another call.", param="digest")
    if "answered" not in answers:
        raise APIError(404, f"No call '{call_id}' waits.", "not_found_error", param="id")
    action = "approve_call" if fields.approve else "deny_call"
    log_change(http, action, call_id)
    await service.operator.note(Change(name, action, call_id, {"digest": fields.digest}))
    return answer({"object": "approval", "id": call_id, "approve": fields.approve})
