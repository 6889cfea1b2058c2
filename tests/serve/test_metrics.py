"""The metrics of `weir serve`, with the real engine behind it."""

from collections.abc import Callable

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
)
COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "request_success",
    "num_preemptions",
    "prefix_cache_queries",
    "prefix_cache_hits",
)
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


async def test_vllm_s_names_are_there_and_count(weir_serve: Callable[..., str]) -> None:
    url = weir_serve()
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 5, "ignore_eos": True}
    async with aiohttp.ClientSession() as http:
        async with http.post(url + "/v1/chat/completions", json=body) as response:
            assert (await response.json())["usage"]["completion_tokens"] == 5
        async with http.get(url + "/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            text = await response.text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for names, kind in ((HISTOGRAMS, "histogram"), (COUNTERS, "counter"), (GAUGES, "gauge")):
        for name in names:
            assert families[f"weir_{name}"].type == kind
    for name in HISTOGRAMS:
        counts = [s.value for s in families[f"weir_{name}"].samples if s.name.endswith("_count")]
        assert sum(counts) >= 1, name
    phases = {
        s.labels["phase"]: s.value for s in families["weir_engine_step_seconds"].samples if "_sum" in s.name
    }
    assert set(phases) == {"schedule", "draft", "forward", "sample", "update"}
    assert all(seconds > 0 for seconds in phases.values())
