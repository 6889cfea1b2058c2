"""Hooks in a process of their own, as clients of every endpoint see them (contract 1.5, 4.1)."""

from pathlib import Path

import pytest

from engine.upstream.echo import EchoEngine
from hooks.workers.pool import WorkerPool
from tests.contract.case import Case, guard
from tests.contract.test_judges import judged
from tests.contract.test_operator import OPERATOR, settings
from tests.contract.wire import ENDPOINTS
from tests.proxy.conftest import Serve


async def test_a_worker_that_dies_fails_its_request_alone(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """One server for all cases: it takes longest to start a worker."""
    hooks = (
        guard("Dies", word="zebra7"),
        guard("CannotRead", word="quartz"),
        guard("Redacts", word="bluebird"),
    )
    pool = WorkerPool(1, hooks)
    client = await serve(EchoEngine(), pipeline=pool)
    for endpoint in ENDPOINTS:
        for streams in (False, True):
            case = Case(endpoint, streams, serve, caplog, clients=[client])
            case.withholds("zebra7", "three")
            died = await case.ask(client, "one two zebra7 three")
            assert died.error is not None
            assert died.error.kind == endpoint.guardrail_error
            assert died.only.content == ("one two" if streams else "")
            unread = await case.ask(client, "quartz two")  # contract 4.4
            assert unread.error is not None
            assert (unread.status, unread.error.kind) == (400, "invalid_request_error")
            case.withholds("bluebird")
            answer = await case.ask(client, "one bluebird two")
            assert (answer.only.content, answer.only.finish) == ("one [x] two", "stop")
            await case.check_withheld()


async def test_a_judge_in_a_worker_is_told_like_any_other(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:  # contract 1.5, 3.17
    hooks = [
        guard("Suspects", word="zebra7"),
        guard("Judges", word="bluebird", releases=True, only_when="suspect", window=2),
    ]
    client = await serve(EchoEngine(), pipeline=WorkerPool(1, hooks), **settings())
    case = Case(ENDPOINTS[0], True, serve, caplog, clients=[client])
    answer = await case.ask(client, "one two zebra7 three four", headers=OPERATOR)
    assert answer.only.content == "one two zebra7 three four"
    actions = [one["action"] for name, one in answer.told if name == "weir.decision"]
    assert [action for action in actions if action != "hold"] == ["suspect", "judged"]
    (told,) = judged(answer)
    assert (told["hook"], told["num_judged"], told["num_unjudged"]) == ("Judges", 5, 0)
    assert told["max_unjudged"] <= 2


async def test_a_hook_in_a_worker_learns_the_tokens(
    serve: Serve, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:  # contract 1.5, 8.18
    file = tmp_path / "counts"
    client = await serve(EchoEngine(), pipeline=WorkerPool(1, [guard("CountsTokens", file=str(file))]))
    case = Case(ENDPOINTS[0], True, serve, caplog, clients=[client])
    answer = await case.ask(client, "one two three")
    assert answer.usage is not None
    num_prompt, num_completion = answer.usage
    assert file.read_text() == f"{ENDPOINTS[0].name} 1 {num_prompt} {num_completion}\n"
