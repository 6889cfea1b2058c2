"""Finds the family of a guard model."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, get_args

from engine.protocol import Engine, RequestError, Tokenizer
from hooks.builtin.guard_prompts.spliced_prompt import mark
from hooks.builtin.judge_families.by_ids import layout_of
from hooks.builtin.judge_families.family import Chat, Family, GuardModel
from hooks.builtin.judge_families.policy import Policy

FamilyName = Literal[
    "gpt_oss_safeguard",
    "qwen3guard",
    "nemotron",
    "llama_guard",
    "shieldgemma",
    "granite_guardian",
    "wildguard",
    "policy",
]
"""Each is a module of this folder. They are looked for in this order."""


def _load(name: str) -> type[Family]:
    module = import_module(f"{__package__}.{name}")
    found: type[Family] = next(one for one in vars(module).values() if getattr(one, "name", None) == name)
    return found


FAMILIES = tuple(map(_load, get_args(FamilyName)))
_KWARGS = {"guardian_config": {"criteria_id": "harm", "risk_name": "harm"}, "guideline": "None."}
_USER = {"role": "user", "content": mark(0)}
_REPLY = {"role": "assistant", "content": mark(1)}


@dataclass(frozen=True, slots=True)
class FamilyOptions:
    """The deployment's words about the family."""

    name: str | None
    policy: str | None
    answers: Sequence[str]


def find_family(engine: Engine, model: str, options: FamilyOptions) -> Family:
    """The family of `options`, or else the one that the model's chat template or its name shows. Raises
    `ValueError` if no family fits, and for a policy that the family does not read."""
    tokenizer = engine.tokenizer
    layout = "" if tokenizer is None else _layout(tokenizer, [_USER, _REPLY])
    kind = _kind(layout, model.lower(), options)
    if options.policy is None and kind.reads_policy:
        raise ValueError(f"policy: the family {kind.name} needs one")
    if options.policy is not None and not kind.reads_policy:
        raise ValueError(f"policy: the family {kind.name} has its own")
    with_system = [{"role": "system", "content": mark(2)}, _USER]
    has_system = tokenizer is None or mark(2) in _layout(tokenizer, with_system)
    policy = options.policy or ""
    return kind.of(GuardModel(layout, model, tokenizer is not None, has_system, policy, options.answers))


def knows_system(tokenizer: Tokenizer | None) -> bool:
    """Whether the model's chat template lays out system messages in addition to the conversation."""
    if tokenizer is None:
        return False
    layout = _layout(tokenizer, [{"role": "system", "content": mark(2)}, _USER, _REPLY])
    return all(mark(i) in layout for i in range(3))


def _kind(layout: str, model: str, options: FamilyOptions) -> type[Family]:
    if options.name is not None:
        return next(one for one in FAMILIES if one.name == options.name)
    found = next((one for one in FAMILIES if one.recognises(layout, model)), None)
    if options.policy is not None and not (found and found.reads_policy):
        return Policy
    if found is None:
        names = ", ".join(one.name for one in FAMILIES)
        raise ValueError(
            f"family: neither the model's chat template nor its name shows one. There are {names}; any chat "
            "model can follow a policy: FILE"
        )
    return found


def _layout(tokenizer: Tokenizer, messages: Sequence[dict[str, str]]) -> str:
    """The messages in the model's chat template; empty if it refuses them, or without a template."""
    try:
        return layout_of(tokenizer, Chat(messages, _KWARGS))
    except RequestError:
        return ""
