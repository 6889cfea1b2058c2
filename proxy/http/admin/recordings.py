"""`/admin/recordings`: the files of `--record`, which hold requests and the model's own words.

Their text goes only to the admin key, and only if the setting `read_recordings` allows it.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from engine.streams.recording import RECORDING_NAME
from proxy.http.access.operator import admin_name, log_change
from proxy.http.admin.decisions import filters
from proxy.http.admin.wire import answer, listing, moment, number, operator_store
from proxy.service.service import SERVICE, Service
from proxy.storage.operator import changes
from proxy.storage.records import Change
from proxy.wire.errors import APIError


async def list_recordings(http: web.Request) -> web.Response:
    """The newest first. `cursor`: those that began before the recording with this id."""
    filters(http)
    limit, cursor = number(http, "limit", 100, 1000), http.query.get("cursor")
    since, until = moment(http, "since"), moment(http, "until")
    found = await asyncio.to_thread(_found, _folders(http.config_dict[SERVICE]))
    some = [
        one
        for one in found
        if (cursor is None or one["id"] < cursor)
        and (since is None or one["created"] >= since)
        and (until is None or one["created"] < until)
    ]
    return listing(some[:limit], next_cursor=some[limit - 1]["id"] if len(some) > limit else None)


async def get_recording(http: web.Request) -> web.StreamResponse:
    """The file itself: JSON lines, as `engine.streams.recording` describes them."""
    admin_name(http)
    service = http.config_dict[SERVICE]
    if not service.settings.read_recordings:
        raise APIError(
            403, "Recordings are not read here (--read-recordings).", "permission_error", code="not_allowed"
        )
    path = await _path(service, http.match_info["id"])
    headers = {"Cache-Control": "no-store", "Content-Type": "application/x-ndjson"}
    return web.FileResponse(path, headers=headers)


async def delete_recording(http: web.Request) -> web.Response:
    operator, recording_id = admin_name(http), http.match_info["id"]
    service = http.config_dict[SERVICE]
    path = await _path(service, recording_id)
    await operator_store(http).store.run(changes.add(Change(operator, "delete_recording", recording_id, {})))
    await asyncio.to_thread(path.unlink, missing_ok=True)
    log_change(http, "delete_recording", recording_id)
    return answer({"id": recording_id, "object": "recording", "deleted": True})


def _folders(service: Service) -> list[Path]:
    """The folders that the models' recordings are in."""
    folders = (model.settings.record for model in service.deployment.models.values())
    return list(dict.fromkeys(folder for folder in folders if folder is not None))


def _found(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """All recordings, the newest first."""
    paths = [path for folder in folders for path in folder.glob("*.jsonl")]
    found = [one for path in paths if (one := _described(path)) is not None]
    return sorted(found, key=lambda one: str(one["id"]), reverse=True)


def _described(path: Path) -> dict[str, Any] | None:
    """None: the file is not a recording, or has just been removed."""
    if not RECORDING_NAME.fullmatch(path.name):
        return None
    try:
        began = datetime.strptime(path.name[:21], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
        size = path.stat().st_size
    except (OSError, ValueError):
        return None
    return {"id": path.stem, "object": "recording", "created": began.timestamp(), "bytes": size}


async def _path(service: Service, recording_id: str) -> Path:
    """Raises `APIError` 404."""
    name = f"{recording_id}.jsonl"
    if RECORDING_NAME.fullmatch(name):
        for folder in _folders(service):
            if await asyncio.to_thread((folder / name).is_file):
                return folder / name
    raise APIError(404, "There is no recording with this id.", "not_found_error", param="id")
