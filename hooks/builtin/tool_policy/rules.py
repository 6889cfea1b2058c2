"""A policy's rules, and the decision on a call whose arguments are known up to a place."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Required

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from hooks.builtin.tool_policy.arguments import Arguments
from hooks.builtin.tool_policy.conditions import TIMEOUT, Condition, Written, compiled
from hooks.builtin.tool_policy.said import Said
from hooks.detect.argument_types import blamed_on

Effect = Literal["allow", "deny", "deny_if_tainted"]


@with_config(ConfigDict(extra="forbid"))
class WrittenRule(TypedDict, total=False):
    """A rule as a configuration writes it.

    `tools`: the tools that the rule is for, as globs (`get_*`). `when`: conditions on arguments, by JSON
    pointer. `optional`: those of the pointers whose values may be missing. `asked`: a pattern that the user's
    own words must have. `effect`: `allow`, `deny`, or `deny_if_tainted`, for requests with a stranger's text
    in them.
    """

    tools: Required[Annotated[Sequence[str], Field(min_length=1)]]
    when: Mapping[str, Written | Annotated[Sequence[Written], Field(min_length=1)]]
    optional: Sequence[str]
    asked: str
    effect: Effect


class Rule:
    """Says what happens to a call that it applies to."""

    def __init__(self, written: WrittenRule) -> None:
        """Raises `ValueError` for a condition that cannot be checked."""
        self._globs = tuple(written["tools"])
        self._effect = written.get("effect", "allow")
        self._conditions: list[Condition] = []
        when, optional = written.get("when", {}), written.get("optional", ())
        if unknown := set(optional) - set(when):
            raise ValueError(f"optional: no condition in when has {', '.join(sorted(unknown))}")
        for pointer, condition in when.items():
            with blamed_on(pointer or '""'):
                self._conditions.append(Condition(pointer, condition, is_optional=pointer in optional))
        with blamed_on("asked"):
            self._asked = compiled(f"(?is:{written['asked']})") if "asked" in written else None

    @property
    def allows(self) -> bool:
        return self._effect == "allow"

    @property
    def reads_prompt(self) -> bool:
        """Whether it depends on what the conversation says."""
        return self._asked is not None or any(one.reads_prompt for one in self._conditions)

    @property
    def members(self) -> frozenset[str | None]:
        """The members that it has conditions on. None stands for all members."""
        return frozenset(condition.pointer.member for condition in self._conditions)

    def is_for(self, tool: str) -> bool:
        return any(fnmatchcase(tool, glob) for glob in self._globs)

    def applies(self, arguments: Arguments, said: Said, *, is_tainted: bool) -> bool | None:
        """Whether the rule applies to the call. None: the arguments that follow decide it."""
        if self._effect == "deny_if_tainted" and not is_tainted:
            return False
        if self._asked is not None and not self._was_asked(said):
            return False
        is_open = False
        for condition in self._conditions:
            if not arguments.is_complete and condition.pointer.member not in arguments.members:
                is_open = True
            elif not condition.holds(arguments.members, said, is_for_all=self.allows):
                return False
        return None if is_open else True

    def _was_asked(self, said: Said) -> bool:
        assert self._asked is not None
        return any(self._asked.search(text, timeout=TIMEOUT) for text in said.texts("user"))


class Policy:
    """Rules in order: the first one that applies to a call decides."""

    def __init__(self, rules: Sequence[WrittenRule], default: Literal["allow", "deny"]) -> None:
        """`default`: for tools that no rule names. Raises `ValueError`, which names the rule."""
        self._allows_others = default == "allow"
        self.rules: list[Rule] = []
        for i, written in enumerate(rules):
            with blamed_on(f"rules[{i}] ({', '.join(written['tools'])})"):
                self.rules.append(Rule(written))

    def rules_for(self, tool: str) -> list[Rule]:
        return [rule for rule in self.rules if rule.is_for(tool)]

    def decide(self, rules: list[Rule], arguments: Arguments, said: Said, *, is_tainted: bool) -> bool | None:
        """Whether a call is allowed to which `rules` may apply. None: the arguments that follow decide it."""
        if not rules:
            return self._allows_others
        for rule in rules:
            applies = rule.applies(arguments, said, is_tainted=is_tainted)
            if applies is not False:
                return applies and rule.allows
        return False
