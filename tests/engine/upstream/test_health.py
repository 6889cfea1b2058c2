"""The answers of an upstream show its health."""

import pytest

from engine.protocol import EngineError
from engine.upstream.health import LACKS_MODEL, MEMORY, REFUSES_KEY, UNREACHABLE, UpstreamHealth


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> UpstreamHealth:
    return UpstreamHealth("http://upstream/v1", clock)


def test_nothing_is_wrong_with_an_upstream_that_was_never_asked(health: UpstreamHealth) -> None:
    assert health.problem is None
    health.check()


def test_a_failed_connection_counts_for_a_while(health: UpstreamHealth, clock: Clock) -> None:
    health.failed()
    assert health.problem == UNREACHABLE
    with pytest.raises(EngineError, match="cannot be reached") as raised:
        health.check()
    assert raised.value.status == 503
    clock.now += MEMORY
    health.check()
    assert health.problem is None


@pytest.mark.parametrize("status", [200, 400, 403, 500])
def test_an_answer_ends_a_failure(health: UpstreamHealth, status: int) -> None:
    health.failed()
    health.answered(status)
    assert health.problem is None


def test_a_refused_key_is_a_failure(health: UpstreamHealth) -> None:
    for tell in (health.answered, health.listed):
        tell(401)
        assert health.problem == REFUSES_KEY
        tell(200)
        assert health.problem is None


@pytest.mark.parametrize("status", [404, 405, 501, 503])
def test_a_list_of_models_that_is_an_error_is_a_problem_and_no_failure(
    health: UpstreamHealth, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        health.listed(status)
        assert health.problem == f"answers the question for its models with HTTP {status}"
        health.check()
        health.answered(200)
    assert [one.message for one in caplog.records] == [f"upstream http://upstream/v1 {health.problem}"]
    health.listed(200)
    assert health.problem is None


@pytest.mark.parametrize("status", [400, 403, 500])
@pytest.mark.parametrize(
    ("has_key", "hint"), [(True, "is its key right?"), (False, "it is sent no key: does it want one?")]
)
def test_a_list_of_models_may_be_an_error_because_of_the_key(
    status: int, has_key: bool, hint: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """LiteLLM without its database answers a missing or wrong key so."""
    health = UpstreamHealth("http://upstream/v1", clock, has_key=has_key)
    health.listed(status)
    assert health.problem == f"answers the question for its models with HTTP {status} ({hint})"
    assert [one.message for one in caplog.records] == [f"upstream http://upstream/v1 {health.problem}"]
    health.listed(200)
    assert health.problem is None


def test_a_model_that_is_not_listed_is_a_problem_and_no_failure(health: UpstreamHealth) -> None:
    health.listed(200, lacks_model=True)
    assert health.problem == LACKS_MODEL
    health.check()
    health.answered(200)  # the server has more models than it lists
    assert health.problem is None


def test_each_problem_is_logged_once(health: UpstreamHealth, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        health.failed()
        health.answered(401)
    for _ in range(3):
        health.listed(200, lacks_model=True)
    said = [record.getMessage().removeprefix("upstream http://upstream/v1 ") for record in caplog.records]
    assert said == [*[UNREACHABLE, REFUSES_KEY] * 3, LACKS_MODEL]
