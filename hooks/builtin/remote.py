"""A detector that runs in a separate service, asked over HTTP: `--hook remote`.

The guard speaks two APIs. OpenAI's moderations judge a text as a whole. `POST /api/v1/text/contents`, the API
of the detectors behind the FMS guardrails orchestrator, finds spans in a text.
"""

from collections.abc import Mapping
from typing import Any, Literal, Unpack

from hooks import checked
from hooks.builtin.remote_service.apis import Contents, Moderations
from hooks.builtin.remote_service.service import DetectorService
from hooks.detect.acting_guard import Options
from hooks.detect.argument_types import Count, Names, Seconds, Share
from hooks.detect.judge_guard import JudgeGuard
from hooks.detect.windows import Unit, make_windows


class Remote(JudgeGuard):
    """Finds what a detector service reports. The guard asks the service over HTTP."""

    @checked
    def __init__(
        self,
        url: str,
        *,
        api: Literal["moderations", "contents"] = "moderations",
        model: str | None = None,
        detector: str = "",
        detector_params: Mapping[str, Any] | None = None,
        labels: Names | None = None,
        threshold: Share | None = None,
        unit: Unit = "sentences",
        window: Count = 2,
        stride: Count | None = None,
        timeout: Seconds = 5.0,
        max_connections: Count = 16,
        api_key_env: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """`url`: the complete URL, as `http://127.0.0.1:8080/api/v1/text/contents`. `model`: for moderations,
        the model's name if the service has several. `detector`, `detector_params`: for contents, the header
        `detector-id` and the arguments of that detector.

        `labels`: the categories, detections or types of detections to act on; None: all. `threshold`: the
        least score that counts; None: everything that the service reports counts. `window` and `stride` count
        `unit`s, `sentences` or `characters`, and bound the held text, as for `classifier`.

        `timeout`: seconds for a request, including the wait for one of `max_connections` and one more try if
        the connection breaks. Late and invalid answers and errors fail. `api_key_env`: the environment
        variable with the key for `Authorization: Bearer`. Raises `ValueError` for invalid arguments.
        """
        wanted = None if labels is None else frozenset(labels)
        service = DetectorService(url, timeout, max_connections, api_key_env)
        judge: Moderations | Contents
        if api == "moderations":
            if detector or detector_params is not None:
                raise ValueError("detector and detector_params are of api: contents")
            judge = Moderations(service, wanted, threshold, model)
        else:
            if model is not None:
                raise ValueError("model is of api: moderations")
            if not detector:
                raise ValueError("contents needs a detector")
            judge = Contents(service, wanted, threshold, detector, dict(detector_params or {}))
        super().__init__(judge.judge, make_windows(unit, window, stride), **options)
        self._service = service

    async def close(self) -> None:
        await self._service.close()
