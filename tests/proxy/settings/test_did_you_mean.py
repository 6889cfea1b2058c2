"""Wrong settings are told with their place and the name that was meant."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from engine.protocol.engines import ENGINES
from proxy.settings.did_you_mean import problems
from proxy.settings.serve import ServeSettings


class Limits(BaseModel, extra="forbid"):
    max_tokens: int | None = None


class Outer(BaseModel, extra="forbid"):
    policies: dict[str, Limits] | None = None


def problems_of(settings: type[BaseModel], **given: Any) -> list[str]:
    with pytest.raises(ValidationError) as raised:
        settings(**given)
    return problems(raised.value, settings)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hook_timeot": 3}, "hook_timeot: there is no such option; did you mean 'hook_timeout'?"),
        ({"engine": "opnai"}, f"or {ENGINES.names()[-1]!r}; did you mean 'openai'?"),
        ({"tls_key": "k"}, "tls_key: there is no such option; did you mean 'ssl_keyfile'?"),
        ({"zebra": 3}, "zebra: there is no such option"),
        (
            {"upstream": [{"url": "http://a/v1", "nmae": "x"}]},
            "upstream.0.nmae: there is no such option; did you mean 'name'?",
        ),
        (
            {"hooks": [{"path": "x", "agrs": {}}]},
            "hooks.0.agrs: there is no such option; did you mean 'args'?",
        ),
        ({"hooks": [{"path": "x", "mode": "shdow"}]}, "or 'shadow'; did you mean 'shadow'?"),
        ({"engine": "replay"}, "engine 'replay' needs recordings: --recordings DIR"),
    ],
    ids=str,
)
def test_a_problem_names_its_place_and_what_was_meant(given: dict[str, Any], says: str) -> None:
    (problem,) = problems_of(ServeSettings, **given)
    assert problem.endswith(says)


def test_options_in_mappings_are_known_too() -> None:
    (problem,) = problems_of(Outer, policies={"strict": {"max_tokns": 3}})
    assert problem == "policies.strict.max_tokns: there is no such option; did you mean 'max_tokens'?"


def test_all_problems_are_told_and_no_value() -> None:
    found = problems_of(ServeSettings, port="sk-secret", hook_timeout="sk-secret", api_keys="sk-secret")
    assert len(found) == 3
    assert "sk-secret" not in "".join(found)
