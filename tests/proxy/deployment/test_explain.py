"""The explanation of a policy, as the operator reads it."""

from typing import Any

import pytest

from hooks.loading.loader import HookSpec
from proxy.deployment.directory import PolicyEntry
from proxy.deployment.explain import explain_policy
from proxy.settings.policy import PolicySettings


@pytest.mark.parametrize(
    "args",
    [
        {"api_key": "hunter2"},
        {"passwd": "hunter2"},
        {"auth": ["hunter2"]},
        {"services": [{"bearer": {"of": "hunter2"}}]},
        {"url": "https://me:hunter2@judge.example/v1"},
        {"url": "https://me:hunter2/9@judge.example/v1"},
    ],
)
def test_arguments_of_hooks_are_told_without_secrets(args: dict[str, Any]) -> None:
    policy = PolicyEntry("strict", PolicySettings(hooks=[HookSpec("judge.py:Judge", {**args, "limit": 3})]))
    (told,) = explain_policy(policy)["hooks"]
    assert told["args"]["limit"] == 3
    assert "hunter2" not in str(told)
