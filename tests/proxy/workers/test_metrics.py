"""The metrics of several workers: sums, which no worker's end lowers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from engine.protocol import Delta, Usage
from proxy.deployment.deployment import Deployment
from proxy.deployment.keys import ANONYMOUS
from proxy.http.respond import AnswerStage
from proxy.service.metrics import Metrics
from proxy.settings.model import ModelSettings
from proxy.workers.metrics import CommonMetrics, forget_gauges
from tests.helpers import ScriptedEngine, make_deltas, pipeline_of
from tests.proxy.service.test_metrics import Samples


def counted(num_requests: int) -> Metrics:
    """The metrics of a worker that has answered so many requests, and has one more under way."""
    deployment = Deployment.of_one(ScriptedEngine(lambda _: []), pipeline_of(), ModelSettings())
    metrics = Metrics(lambda: [deployment])
    for _ in range(num_requests):
        with metrics.request("chat", deployment.route(ANONYMOUS, None).model.name, "default") as request:
            stage = AnswerStage(lambda _: None, request)
            for delta in (*make_deltas(["a", "b"]), Delta(usage=Usage(7, 2))):
                stage.feed(delta)
            request.end("finished")
    return metrics


Join = Callable[[int, Metrics], CommonMetrics]


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Join]:
    """`join(1, metrics)`: the first worker's part."""
    with ExitStack() as stack:
        yield lambda number, own: stack.enter_context(closing(CommonMetrics(own, tmp_path, number)))


async def test_one_worker_s_metrics_are_as_if_it_served_alone(join: Join) -> None:
    own = counted(3)
    common = join(1, own)
    common.write()
    common.write()
    alone, shared = (Samples(text.decode()) for text in (await own.render(), common.render()))
    assert shared.values == alone.values
    kinds = {name: family.type for name, family in shared.families.items()}
    assert kinds.items() <= {name: family.type for name, family in alone.families.items()}.items()


def test_counts_of_workers_that_are_gone_stay(tmp_path: Path, join: Join) -> None:
    first, second = join(1, counted(3)), join(2, counted(2))
    first.write()
    second.write()
    forget_gauges(tmp_path, 1)
    requests = {"endpoint": "chat", "outcome": "finished"}
    assert Samples(second.render().decode())("weir_requests_total", **requests) == 5
    replaced = join(1, counted(1))
    assert Samples(second.render().decode())("weir_requests_total", **requests) == 5
    replaced.write()
    samples = Samples(second.render().decode())
    assert samples("weir_requests_total", **requests) == 6
    assert samples.count("weir_inter_token_latency_seconds", endpoint="chat") == 6
    assert samples("weir_request_prompt_tokens_bucket", endpoint="chat", le="10.0") == 6


def test_gauges_of_a_worker_that_died_are_gone(tmp_path: Path, join: Join) -> None:
    for number in (1, 2):
        join(number, counted(0)).write()
    assert len(list(tmp_path.glob("gauge_*"))) == 2
    forget_gauges(tmp_path, 1)
    assert [file.name for file in tmp_path.glob("gauge_*")] == ["gauge_livesum_2.db"]


def test_a_file_has_all_its_space_before_anything_is_written(join: Join, tmp_path: Path) -> None:
    """A write into a hole of a mapped file kills the process where the disk is full."""
    join(1, counted(3))
    for file in tmp_path.glob("*.db"):
        assert file.stat().st_blocks * 512 >= file.stat().st_size
