"""Rules from a configuration of gitleaks: `secrets: {rules: FILE}`.

The secret's group alone is redacted, if the group is in no other group: the pattern before it becomes
`Rule.behind`, the pattern after it a look-ahead. Otherwise the whole match is redacted.
"""

import logging
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from hooks.builtin.secret_rules.go_patterns import Part, grouped, parsed, written
from hooks.builtin.secret_rules.randomness import entropy
from hooks.detect.automaton.regex_analysis import analyse, finder
from hooks.detect.automaton.tree import literals_of, tree_of
from hooks.detect.rules import Rule, RuleDetector

TIMEOUT = 1.0
"""Seconds that a search with a pattern of a file may take."""
logger = logging.getLogger("weir.hooks")
_LEFT = 96
"""Characters before a secret in which an allow list for the match or the line is searched."""
_LONG = 1024
"""Most times that a repeat without a bound is read before a match ends where the repeat does."""
_IN_ALLOW_LISTS = 64
"""Most times that an allow list's unbounded repeat is read."""


class _Pattern(NamedTuple):
    """A pattern's parts as the fields of a `Rule`."""

    pattern: str
    behind: str | None = None
    until: str | None = None


class _AllowList(TypedDict, total=False):
    condition: Literal["", "OR", "||", "AND", "&&", "or", "and"]
    regexTarget: Literal["", "secret", "match", "line"]
    regexes: list[str]
    stopwords: list[str]
    targetRules: list[str]
    paths: list[str]
    commits: list[str]


class _Extend(TypedDict, total=False):
    disabledRules: list[str]


class _GitleaksRule(TypedDict, total=False):
    regex: Required[str]
    secretGroup: Annotated[int, Field(ge=0)]
    keywords: list[str]
    entropy: Annotated[float, Field(allow_inf_nan=False)]
    allowlist: _AllowList
    allowlists: list[_AllowList]


class _Named(TypedDict):
    id: Annotated[str, Field(min_length=1)]


class _Configuration(TypedDict, total=False):
    extend: _Extend
    allowlist: _AllowList
    allowlists: list[_AllowList]
    rules: list[_Named]


_RULE = TypeAdapter(_GitleaksRule)
_CONFIGURATION = TypeAdapter(_Configuration)
Check = Callable[[str], bool]


def rules_of(file: Path) -> list[Rule]:
    """Return the rules of the file. Raises `ValueError` with the ids of all rules that cannot be kept, and
    `OSError` for a file that cannot be read."""
    config = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    _check(config, _CONFIGURATION)
    extend = config.get("extend", {})
    if extend.get("useDefault") or extend.get("path") or extend.get("url"):
        raise ValueError("extend: the file must have all rules itself")
    left_out = set(extend.get("disabledRules", ()))
    common = _allow_lists(config)
    rules: list[Rule] = []
    refused: list[str] = []
    for one in config.get("rules", ()):
        name = one["id"]
        if name in left_out or one.get("skipReport"):
            continue
        if "path" in one:
            logger.warning("rules: %s is about files of a path, and is left out", name)
            continue
        try:
            _check(one, _RULE)
            made = _rules(
                name, one, [allow for allow in common if name in (allow.get("targetRules") or [name])]
            )
            RuleDetector(made)
        except (ValueError, RecursionError) as error:
            refused.append(f"{name} ({error})")
        else:
            rules += made
    if refused:
        raise ValueError(f"cannot be kept, name them in extend.disabledRules: {'; '.join(refused)}")
    return rules


def _check(value: object, form: TypeAdapter[Any]) -> None:
    try:
        form.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _allow_lists(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*([one["allowlist"]] if "allowlist" in one else []), *one.get("allowlists", ())]


def _rules(name: str, one: Mapping[str, Any], common: Sequence[Mapping[str, Any]]) -> list[Rule]:
    branches = parsed(one["regex"])
    number, groups = one.get("secretGroup", 0), sum(part.num_groups for branch in branches for part in branch)
    if number > groups:
        raise ValueError(f"secretGroup {number}: the pattern has {groups} groups")
    if "required" in one:
        raise ValueError("required: no rule can ask for another one")
    lists = [*common, *_allow_lists(one)]
    allows = [allow for allow in map(_allowed, lists) if allow is not None]
    unless = [pattern for pattern in map(_allowed_before, lists) if pattern]
    keywords = [word.lower() for word in one.get("keywords", ())]
    rules: list[Rule] = []
    check = partial(_is_secret, least=one.get("entropy", 0), allows=allows)
    for found in (found for branch in branches for found in _split(branch, number)):
        rule = Rule(
            name.upper().replace("-", "_"),
            found.pattern,
            check=check,
            behind=found.behind,
            until=found.until,
            unless="|".join(unless) or None,
        )
        rules += _with_keywords(rule, keywords)
    return rules


def _is_secret(text: str, least: float, allows: Sequence[Check]) -> bool:
    return not (least and entropy(text) <= least) and not any(allow(text) for allow in allows)


def _with_keywords(rule: Rule, keywords: Sequence[str]) -> list[Rule]:
    """Return the rules that together ask for a keyword: within the match, or near before it."""
    if not keywords or _implies(rule.pattern, keywords):
        return [rule]
    near = "|".join(map(re.escape, keywords))
    rules = [replace(rule, near=near)]
    if not (rule.behind and _implies(rule.behind, keywords)):
        rules.append(replace(rule, check=partial(_has_keyword, keywords=keywords, check=rule.check)))
    return rules


def _has_keyword(text: str, keywords: Sequence[str], check: Check | None) -> bool:
    return any(word in text.lower() for word in keywords) and (check is None or check(text))


def _implies(pattern: str, keywords: Sequence[str]) -> bool:
    """Whether every match of the pattern has a keyword in one of its parts."""
    tree = tree_of(re.sub(r"\(\?-?i:", "(?:", pattern))
    texts = literals_of(tree) if tree is not None else ("",)
    return all(any(word in text.lower() for word in keywords) for text in texts)


def _split(branch: Sequence[Part], number: int) -> list[_Pattern]:
    """Return the patterns of one alternative. Raises `ValueError` if it has no bound."""
    groups = [i for i, part in enumerate(branch) if part.num_groups]
    place = (
        next((i for i in groups if branch[i].group == number), None) if number else next(iter(groups), None)
    )
    if place is None or not branch[place].group or branch[place].repeat:
        return _patterns(branch, ())
    before, after = branch[:place], branch[place + 1 :]
    while before and not before[0].fewest:
        before = before[1:]
    if not all(part.has_bound for part in (*before, *after)):
        raise ValueError("the text before the secret has no bound, or the text after it")
    values = [one for value in _alternatives(branch[place]) for one in _patterns(value, after)]
    if all(part.is_empty for part in before):
        return [one._replace(pattern=written(before) + one.pattern) for one in values]
    return [one._replace(behind=f"(?-i:{written(before)})") for one in values]


def _alternatives(part: Part) -> list[Sequence[Part]]:
    """Return the alternatives of a group, or of the only group within it; as one if they have a bound."""
    if part.has_bound:
        return [[replace(part, group=0)]]
    found: list[Sequence[Part]] = []
    for branch in part.branches:
        is_group = len(branch) == 1 and branch[0].branches and not branch[0].repeat
        found += _alternatives(branch[0]) if is_group else [branch]
    return found


def _patterns(parts: Sequence[Part], after: Sequence[Part]) -> list[_Pattern]:
    """Return the patterns of parts, of which the one that ends the match may have no bound. It is read up to
    `_LONG` times together with what must follow; a longer one ends where the part does."""
    ahead = f"(?={written(after)})" if after else ""
    unbounded = [i for i, part in enumerate(parts) if not part.has_bound]
    if not unbounded:
        return [_Pattern(written(parts) + ahead)]
    first = unbounded[0]
    last, rest = parts[first], parts[first + 1 :]
    if len(unbounded) > 1 or last.branches:
        raise ValueError("it has no bound: more than its end repeats without one")
    begun = written(parts[:first]) + last.once
    if last.is_lazy and rest:
        return [_Pattern(f"{begun}{{{last.fewest}}}", until=written(rest))]
    if any(part.fewest and not part.is_empty for part in rest):
        raise ValueError("it has no bound: text is asked for after a repeat without one")
    ends = written(part for part in rest if not part.is_empty)
    return [
        _Pattern(f"{begun}{{{last.fewest},{_LONG}}}{written(rest)}{ahead}"),
        _Pattern(f"{begun}{{{_LONG}}}", until=f"(?!{last.once}){ends}"),
    ]


def _allowed(one: Mapping[str, Any]) -> Check | None:
    """Return the check whether a list allows a secret; None: it allows none. Text has no path and no commit:
    a list that asks for these too allows nothing."""
    needs_all = str(one.get("condition", "OR")).upper() in ("AND", "&&")
    if needs_all and (one.get("paths") or one.get("commits")):
        return None
    checks: list[Check] = []
    if one.get("regexes"):
        branches = [branch for pattern in one["regexes"] for branch in parsed(pattern)]
        pattern = grouped(branches)
        analyse(pattern)  # refuses an invalid pattern
        search = finder(pattern, TIMEOUT)
        checks.append(lambda text: search(text, 0) is not None)
    if one.get("stopwords"):
        checks.append(partial(_has_word, words=[word.lower() for word in one["stopwords"]]))
    if not checks:
        return None
    return lambda text: (all if needs_all else any)(check(text) for check in checks)


def _has_word(text: str, words: Sequence[str]) -> bool:
    lower = text.lower()
    return any(word in lower for word in words)


def _allowed_before(one: Mapping[str, Any]) -> str:
    """Return a pattern of the text before a secret that a list for the match or for the line allows."""
    if one.get("regexTarget") not in ("match", "line") or one.get("paths") or one.get("commits"):
        return ""
    branches = [
        [part.within(_IN_ALLOW_LISTS) for part in branch]
        for pattern in one["regexes"]
        for branch in parsed(pattern)
    ]
    if any(part.is_empty for branch in branches for part in branch):
        raise ValueError("an allow list for the match or the line has an anchor")
    return rf"(?-i:{grouped(branches)})[^\n]{{0,{_LEFT}}}"
