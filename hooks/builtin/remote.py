"""A detector that runs in a separate service, asked over HTTP: `--hook remote`.

The guard speaks the APIs of `remote_service`. Some judge a text as a whole, some find spans in it, and some
answer with a changed text.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from hooks import checked
from hooks.builtin.remote_service.apis import ApiName, make_api
from hooks.builtin.remote_service.authorization import authorization
from hooks.builtin.remote_service.service import DetectorService, whole_url
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
        api: ApiName = "moderations",
        model: str | None = None,
        detector: str | None = None,
        detector_params: Mapping[str, Any] | None = None,
        config: str | None = None,
        region: str | None = None,
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
        """`url`: the complete URL, as `http://127.0.0.1:8080/api/v1/text/contents`. `model`: for moderations
        and litellm, the model's name if the service has several; for nemo, the name of its main model.
        `detector`: for fms, the header `detector-id`. `detector_params`: for fms, the arguments of that
        detector; for litellm, `additional_provider_specific_params`. `config`: for nemo, the `config_id`;
        None: the server's default.

        `labels`: what to act on; None: all. For moderations these are categories, for fms detections or types
        of detections, for bedrock names and types of findings. `threshold`: for moderations and fms, the
        least score that counts; None: everything that the service reports counts. `window` and `stride` count
        `unit`s, `sentences` or `characters`, and bound the held text, as for `classifier`.

        `timeout`: seconds for a request, including the wait for one of `max_connections` and one more try if
        the connection breaks. Late and invalid answers and errors fail. `api_key_env`: the environment
        variable with the key for `Authorization: Bearer`, for litellm `x-api-key`. `region`: for bedrock
        without `api_key_env`, the region to sign requests for, with the keys in `AWS_ACCESS_KEY_ID`,
        `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. Raises `ValueError` for invalid arguments.
        """
        arguments = {
            "model": model,
            "detector": detector,
            "detector_params": detector_params,
            "config": config,
            "labels": None if labels is None else frozenset(labels),
            "threshold": threshold,
        }
        whole = whole_url(url)
        authorize = authorization(api, whole, api_key_env, region)
        service = DetectorService(whole, timeout, max_connections, authorize)
        judge = make_api(api, service, arguments).judge
        windows = make_windows(unit, window, stride)
        super().__init__(judge, windows, partial(judge, is_prompt=True), **options)
        self._service = service

    async def close(self) -> None:
        await self._service.close()
