"""A policy's rules, and the decision on a call whose arguments are known up to a place."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Annotated, Literal, Required

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from hooks.builtin.tool_policy.arguments import Arguments, folded
from hooks.builtin.tool_policy.conditions import TIMEOUT, Condition, Written, compiled
from hooks.builtin.tool_policy.conversation import Conversation
from hooks.builtin.tool_policy.truth import Truth, all_of, true_if
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
    """Allows or denies the calls that it applies to. If that is unknown of a call, a denying rule applies,
    and an allowing rule does not."""

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
        """Whether it depends on the conversation's words."""
        return self._asked is not None or any(one.reads_prompt for one in self._conditions)

    @property
    def members(self) -> frozenset[str | None]:
        """The members that it has conditions on. None means all members."""
        return frozenset(condition.pointer.member for condition in self._conditions)

    def is_for(self, tool: str) -> Truth:
        """Whether it is for this tool. Some clients do not compare names of tools exactly."""
        if any(fnmatchcase(tool, glob) for glob in self._globs):
            return Truth.YES
        is_alike = any(fnmatchcase(folded(tool), folded(glob)) for glob in self._globs)
        return Truth.UNKNOWN if is_alike else Truth.NO

    def applies(
        self, tool: str, arguments: Arguments, conversation: Conversation, *, is_tainted: bool
    ) -> bool | None:
        """Whether the rule applies to the call. None: the arguments that follow decide it."""
        known = [one for one in self._conditions if arguments.knows(one.pointer.member)]
        answers = chain(
            (
                self.is_for(tool),
                true_if(is_tainted or self._effect != "deny_if_tainted"),
                self._was_asked(conversation),
            ),
            (one.holds(arguments.members, conversation, is_for_all=self.allows) for one in known),
        )
        if not self._decided(all_of(answers)):
            return False
        return True if len(known) == len(self._conditions) else None

    def _decided(self, answer: Truth) -> bool:
        return answer is Truth.YES or (answer is Truth.UNKNOWN and not self.allows)

    def _was_asked(self, conversation: Conversation) -> Truth:
        pattern = self._asked
        if pattern is None:
            return Truth.YES
        return conversation.answer(
            "user", lambda words: true_if(bool(pattern.search(words.text, timeout=TIMEOUT)))
        )


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
        """The rules that are for a tool, or may be."""
        return [rule for rule in self.rules if rule.is_for(tool) is not Truth.NO]

    def decide(
        self,
        tool: str,
        rules: list[Rule],
        arguments: Arguments,
        conversation: Conversation,
        *,
        is_tainted: bool,
    ) -> bool | None:
        """Whether a call is allowed of a tool that has these rules. None: the arguments that follow decide
        it."""
        if not rules:
            return self._allows_others
        for rule in rules:
            applies = rule.applies(tool, arguments, conversation, is_tainted=is_tainted)
            if applies is not False:
                return applies and rule.allows
        return False
