"""Every token's scores are those of a plain reference, however the engine comes to compute the token."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from engine.execution.probes.probe_file import Probe
from engine.protocol import Rewind, Token
from engine.protocol.probe_info import ProbeKind
from tests.engine.conftest import Answer, EngineFactory, cramped_core, random_prompts
from tests.engine.execution.probes.made import make_probe, reference, save_probe

TOLERANCE = 1e-4
LAYERS = ("model.layers.0", "model.norm")


@pytest.fixture
def probed(
    tmp_path: Path, tiny_model: Callable[[str], Any]
) -> Callable[..., tuple[list[Probe], tuple[str, ...]]]:
    """Makes probes of a tiny model: of all kinds, or of one. Returns them, and the option for the engine."""

    def make(family: str, *kinds: ProbeKind, layers: tuple[str, ...] = LAYERS) -> Any:
        probes = [
            make_probe(tiny_model(family).path, kind, layers, name=kind, seed=i)
            for i, kind in enumerate(kinds or get_args(ProbeKind))
        ]
        return probes, tuple(save_probe(tmp_path, probe) for probe in probes)

    return make


class Check:
    """Compares answers' scores with the reference's."""

    def __init__(self, model: Any, probes: list[Probe]) -> None:
        self.model, self.probes = model, probes

    def __call__(self, answer: Answer, prompt: list[int]) -> None:
        ids = [t.id for t in answer.tokens]
        assert None not in ids
        expected = reference(self.model, self.probes, [*prompt, *ids])
        first, *later = answer.deltas
        assert first.prompt_scores is not None
        assert first.prompt_scores.probes == tuple(probe.info for probe in self.probes)
        assert all(delta.prompt_scores is None for delta in later)
        found = [*first.prompt_scores.tokens, *(t.scores for t in answer.tokens)]
        assert len(found) == len(expected)
        for scores, wanted in zip(found, expected, strict=True):
            assert scores == pytest.approx(wanted, abs=TOLERANCE)
        if answer.echo:
            assert [t.scores for t in answer.echo] == list(first.prompt_scores.tokens)


@pytest.mark.parametrize(
    ("family", "settings", "layers"),
    [
        ("qwen3", {}, ("model.layers.0", "model.norm")),
        ("llama", {"cpu_kernels": "torch"}, ("model.layers.0", "model.layers.1")),
        ("mistral", {"model_impl": "transformers"}, ("model.norm", "model.layers.0")),
        ("gpt2", {}, ("transformer.h.0", "transformer.ln_f")),
    ],
)
def test_scores_equal_those_of_transformers(
    probed: Any,
    tiny_core: Any,
    tiny_model: Any,
    completion_request: Any,
    family: str,
    settings: Any,
    layers: Any,
) -> None:
    probes, files = probed(family, layers=layers)
    core = tiny_core(family, probes=files, **settings)
    check = Check(tiny_model(family).model, probes)
    for prompt in random_prompts(3, longest=40):
        group = core.add(completion_request(tuple(prompt), max_tokens=9, ignore_eos=True, echo=True))
        core.run()
        check(core.answers(group)[0], prompt)


@pytest.mark.parametrize(
    "settings", [{}, {"num_speculative_tokens": 3, "prompt_lookup_min": 1}], ids=["", "drafts"]
)
@pytest.mark.parametrize("is_cramped", [False, True], ids=["roomy", "cramped"])
@pytest.mark.parametrize("enable_prefix_caching", [True, False], ids=["cached", "uncached"])
def test_scores_do_not_depend_on_other_streams(
    probed: Any,
    tiny_core: Any,
    tiny_model: Any,
    completion_request: Any,
    settings: dict[str, Any],
    is_cramped: bool,
    enable_prefix_caching: bool,
) -> None:
    """Prompts are cut and shared, found in the cache, and evicted; sequences are preempted."""
    probes, files = probed("qwen3")
    settings = {**settings, "probes": files, "enable_prefix_caching": enable_prefix_caching}
    make = (
        cramped_core
        if is_cramped
        else lambda core, family, **more: core(family, max_num_batched_tokens=24, **more)
    )
    core = make(tiny_core, "qwen3", **settings)
    opening = list(range(10, 30 if is_cramped else 50))
    prompts = [
        [*opening[: len(opening) * (i % 3) // 2], *prompt]
        for i, prompt in enumerate(random_prompts(6 if is_cramped else 64, longest=20, seed=5))
    ]
    requests = [completion_request(tuple(prompt), max_tokens=7, ignore_eos=True) for prompt in prompts]
    groups = core.serve(requests, random.Random(1))
    check = Check(tiny_model("qwen3").model, probes)
    for group, prompt in zip(groups, prompts, strict=True):
        check(core.answers(group)[0], prompt)
    stats = core.core.stats()
    assert bool(stats.prefix_cache_hits_total) == enable_prefix_caching
    assert bool(stats.preemptions_total) == is_cramped
    assert stats.spec_decode_accepted_tokens_total or is_cramped or "num_speculative_tokens" not in settings
    assert stats.kv_blocks_used == 0


def test_all_outputs_of_a_prompt_have_scores(
    probed: Any, tiny_core: Any, tiny_model: Any, completion_request: Any
) -> None:
    probes, files = probed("qwen3", "linear")
    core = tiny_core("qwen3", probes=files)
    (prompt,) = random_prompts(1, longest=40, seed=8)
    check = Check(tiny_model("qwen3").model, probes)
    for fields in ({"n": 3}, {"n": 2, "best_of": 4}):
        group = core.add(completion_request(tuple(prompt), max_tokens=6, temperature=1.0, seed=1, **fields))
        core.run()
        for answer in core.answers(group):
            check(answer, prompt)
            assert answer.usage.completion_tokens == group.num_output_tokens


def test_every_end_of_an_output_has_scores(
    probed: Any, tiny_core: Any, tiny_model: Any, completion_request: Any
) -> None:
    """A stop id, a stop string that cuts a token, `max_tokens`, and no token at all."""
    probes, files = probed("qwen3", "linear")
    core = tiny_core("qwen3", probes=files)
    model = tiny_model("qwen3")
    (prompt,) = random_prompts(1, longest=40, seed=9)

    def answer(**fields: Any) -> Answer:
        group = core.add(completion_request(tuple(prompt), ignore_eos=True, **fields))
        core.run()
        found: Answer = core.answers(group)[0]
        return found

    whole = answer(max_tokens=12)
    assert whole.finish_reason == "length"
    Check(model.model, probes)(whole, prompt)
    wanted = [t.scores for t in whole.tokens]
    number = next(i for i, t in enumerate(whole.tokens) if len(t.text) > 1)
    cut = answer(max_tokens=12, stop=(whole.tokens[number].text[1:],))
    assert (cut.finish_reason, cut.tokens[-1].id) == ("stop", None)
    assert [t.scores for t in cut.tokens] == [pytest.approx(w, abs=TOLERANCE) for w in wanted[: number + 1]]
    stopped = answer(max_tokens=12, stop_token_ids=(whole.ids[5],))
    assert stopped.finish_reason == "stop"
    assert all(t.scores for t in stopped.tokens)
    (only,) = answer(max_tokens=0, echo=True).deltas[-1:]
    assert (only.tokens, only.finish_reason) == ((), "length")
    ended = core.add(completion_request(tuple(prompt), max_tokens=40, logit_bias={1: 100.0}))
    core.run()
    Check(model.model, probes)(core.answers(ended)[0], prompt)  # the end of sequence has scores, too


async def test_scores_stay_right_over_rewinds(
    probed: Any, start_engine: EngineFactory, tiny_model: Any, completion_request: Any
) -> None:
    probes, files = probed("qwen3")
    engine = await start_engine("qwen3", probes=files)
    assert engine.info.probes == tuple(probe.info for probe in probes)
    assert engine.info.score_names == (
        *("linear.harm", "linear.spam"),
        *("mlp.harm", "mlp.spam"),
        *("attention.weight", "attention.harm", "attention.spam"),
    )
    (prompt,) = random_prompts(1, longest=40, seed=10)
    deltas = engine.generate(completion_request(tuple(prompt), max_tokens=12, ignore_eos=True))
    given: list[Token] = []
    rewinds = [Rewind(0, 5), Rewind(0, 2), Rewind(0, 7)]
    rewind: Rewind | None = None
    first = None
    while True:
        try:
            delta = await deltas.asend(rewind)
        except StopAsyncIteration:
            break
        first = first or delta
        given += delta.tokens
        rewind = None
        if rewinds and (len(given) > rewinds[0].num_tokens or delta.finish_reason):
            rewind = rewinds.pop(0)
            del given[rewind.num_tokens :]
    assert not rewinds
    assert first is not None
    assert first.prompt_scores is not None
    ids = [t.id for t in given if t.id is not None]
    assert len(ids) == 12
    expected = reference(tiny_model("qwen3").model, probes, [*prompt, *ids])
    found = [*first.prompt_scores.tokens, *(t.scores for t in given)]
    assert found == [pytest.approx(wanted, abs=TOLERANCE) for wanted in expected]


def test_a_token_waits_for_one_step_and_no_more(probed: Any, tiny_core: Any, completion_request: Any) -> None:
    _, files = probed("qwen3", "linear")
    with_probe, without = tiny_core("qwen3", probes=files), tiny_core("qwen3")
    steps = []
    for core in (with_probe, without):
        group = core.add(completion_request((5, 6, 7), max_tokens=4, ignore_eos=True))
        counts = []
        while core.core.has_work:
            core.step()
            counts.append(sum(len(d.tokens) for d in core.deltas[group]))
        steps.append(counts)
    assert steps == [[0, 1, 2, 3, 4], [1, 2, 3, 4]]


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_an_engine_does_without_its_probes_for_a_while(
    probed: Any, tiny_core: Any, tiny_model: Any, completion_request: Any, family: str
) -> None:
    layers = LAYERS if family == "qwen3" else ("transformer.h.0", "transformer.ln_f")
    probes, files = probed(family, "linear", layers=layers)
    core = tiny_core(family, probes=files, enable_prefix_caching=False)
    runner = core.core.runner
    check = Check(tiny_model(family).model, probes)
    heads, prompt, answers = runner.probe_heads, tuple(range(5, 25)), []
    for used in (heads, None, heads):
        runner.use_probes(used)
        runner.kv_cache.scores.fill_(7.0)
        group = core.add(completion_request(prompt, max_tokens=6, ignore_eos=True, echo=True))
        core.run()
        answers.append(core.answers(group)[0])
        assert bool((runner.kv_cache.scores == 7.0).all()) == (used is None)
    probed_first, without, probed_again = answers
    check(probed_first, [*prompt])
    check(probed_again, [*prompt])
    assert without.ids == probed_first.ids
    assert without.deltas[0].prompt_scores is None
    assert not any(token.scores for token in [*without.tokens, *without.echo])


def test_scores_that_are_no_numbers_fail_their_request_alone(
    probed: Any, tiny_core: Any, completion_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, files = probed("qwen3", "linear")
    core = tiny_core("qwen3", probes=files)
    good = core.add(completion_request((5, 6, 7), max_tokens=8, ignore_eos=True))
    bad = core.add(completion_request((8, 9, 10), max_tokens=8, ignore_eos=True))
    for _ in range(3):
        core.step()
    scores = core.core.runner.kv_cache.scores
    run = core.core.runner.run

    def break_scores(scheduled: Any, token_ids: Any) -> Any:
        result = run(scheduled, token_ids)
        slot = next(s for s in scheduled if s.sequence.group is bad)
        at = slot.start
        scores[slot.block_table[at // 16] * 16 + at % 16] = float("nan")
        return result

    monkeypatch.setattr(core.core.runner, "run", break_scores)
    core.step()
    monkeypatch.undo()
    core.run()
    assert list(core.errors) == [bad]
    assert len(core.answers(good)[0].ids) == 8


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"family": "llama"}, r"harm.safetensors was trained on another model \(.*llama.*\), not on .*qwen3"),
        ({"layers": ("model.layers.7",)}, "it has no layer model.layers.7"),
        ({"hidden_size": 32}, "probe harm has 64 inputs, and not 2 layers of 48 numbers"),
    ],
)
def test_a_probe_of_another_model_is_refused_by_name(
    tmp_path: Path, tiny_core: Any, tiny_model: Any, change: dict[str, Any], reason: str
) -> None:
    model = tiny_model(change.pop("family", "qwen3")).path
    file = save_probe(tmp_path, make_probe(model, name="harm", **change))
    with pytest.raises(ValueError, match=reason):
        tiny_core("qwen3", probes=(file,))


def test_two_probes_of_one_name_are_refused(tmp_path: Path, tiny_core: Any, tiny_model: Any) -> None:
    file = save_probe(tmp_path, make_probe(tiny_model("qwen3").path))
    with pytest.raises(ValueError, match="two probes have the name made"):
        tiny_core("qwen3", probes=(file, file))


async def test_beam_search_is_refused(probed: Any, start_engine: EngineFactory) -> None:
    _, files = probed("qwen3", "linear")
    engine = await start_engine("qwen3", probes=files)
    with pytest.raises(Exception, match="use_beam_search cannot be combined with probes"):
        await engine.complete((5, 6), n=2, extra={"use_beam_search": True}, max_tokens=2)
