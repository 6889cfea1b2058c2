"""Reads Presidio's YAML of pattern recognizers as rules.

A pattern whose score is below `NEEDS_CONTEXT` counts only after one of the recognizer's context words. Other
patterns, and the words of a deny list, count anywhere. Patterns have Presidio's flags.
"""

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hooks.builtin.pii_rules.family import words_near
from hooks.detect.argument_types import blamed_on
from hooks.detect.rules import Rule, RuleDetector

NEEDS_CONTEXT = 0.4
"""The least score of a pattern that needs no context word."""
_FLAGS = re.DOTALL | re.MULTILINE | re.IGNORECASE
"""Presidio's flags for patterns, unless the file has `global_regex_flags`."""
_LETTERS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_KEYS = {
    *("name", "type", "enabled", "supported_entity", "supported_language", "supported_languages", "patterns"),
    *("deny_list", "deny_list_score", "context", "country_code", "version"),
}


def read_recognizers(file: str | Path) -> list[Rule]:
    """Return the rules of the recognizers in `file` that are not disabled.

    Raises `ValueError`, which names `recognizers` and the recognizer, if the file cannot be read, a pattern
    is invalid or has no bound, a recognizer is not one of patterns, or a weak pattern has no context words.
    """
    with blamed_on("recognizers"):
        content = _content(Path(file))
        listed = content.get("recognizers") if isinstance(content, Mapping) else None
        if not isinstance(listed, list) or not listed:
            raise ValueError(f"{file} has no list 'recognizers'")
        flags = _flags(content.get("global_regex_flags", int(_FLAGS)))
        rules = [rule for one in listed for rule in _rules(one, flags)]
        if not rules:
            raise ValueError(f"all recognizers of {file} are disabled")
        return rules


def _content(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is no YAML: {error}") from error


def _flags(value: object) -> str:
    if not isinstance(value, int) or value & ~int(_FLAGS):
        raise ValueError(f"global_regex_flags: {value!r} has others than IGNORECASE, MULTILINE and DOTALL")
    return "".join(letter for letter, flag in _LETTERS.items() if value & flag)


def _rules(recognizer: object, flags: str) -> list[Rule]:
    if not isinstance(recognizer, Mapping):
        raise ValueError(
            f"{reprlib.repr(recognizer)} is no pattern recognizer: name its entity in 'entities' instead"
        )
    if recognizer.get("enabled", True) is False:
        return []
    name = recognizer.get("name") or recognizer.get("supported_entity")
    with blamed_on(str(name)):
        if unknown := recognizer.keys() - _KEYS:
            raise ValueError(f"{', '.join(sorted(map(str, unknown)))} cannot be kept")
        if recognizer.get("type", "custom") != "custom":
            raise ValueError("it is no pattern recognizer: name its entity in 'entities' instead")
        rules = [*_pattern_rules(recognizer, flags), *_word_rules(recognizer, flags)]
        if not rules:
            raise ValueError("it has neither patterns nor a deny_list")
        RuleDetector(rules)  # refuses a pattern without a bound
        return rules


def _pattern_rules(recognizer: Mapping[str, Any], flags: str) -> Iterator[Rule]:
    context = _context(recognizer)
    for pattern in _list(recognizer, "patterns"):
        if not isinstance(pattern, Mapping) or not isinstance(pattern.get("regex"), str):
            raise ValueError("each of 'patterns' needs a 'regex'")
        score = pattern.get("score", 0)
        if not isinstance(score, int | float):
            raise ValueError(f"the score {score!r} is no number")
        is_weak = score < NEEDS_CONTEXT
        if is_weak and not context:
            raise ValueError(
                f"pattern {pattern.get('name')!r} has a score below {NEEDS_CONTEXT}: it needs 'context' words"
            )
        yield Rule(
            _entity(recognizer), f"(?{flags}:{pattern['regex']})", near=_near(context) if is_weak else None
        )


def _word_rules(recognizer: Mapping[str, Any], flags: str) -> Iterator[Rule]:
    if denied := [re.escape(str(word)) for word in _list(recognizer, "deny_list")]:
        yield Rule(_entity(recognizer), rf"(?<!\w)(?{flags}:{'|'.join(denied)})(?!\w)")


def _entity(recognizer: Mapping[str, Any]) -> str:
    entity = recognizer.get("supported_entity")
    if not isinstance(entity, str) or not entity:
        raise ValueError("it needs a 'supported_entity'")
    return entity


def _context(recognizer: Mapping[str, Any]) -> list[str]:
    """Return the context words, of all languages."""
    words = _list(recognizer, "context")
    for language in _list(recognizer, "supported_languages"):
        if isinstance(language, Mapping):
            words = [*words, *_list(language, "context")]
    return list(map(str, words))


def _near(words: Sequence[str]) -> str:
    return "|".join(map(words_near, words))


def _list(of: Mapping[str, Any], key: str) -> list[Any]:
    value = of.get(key) or []
    if not isinstance(value, list):
        raise ValueError(f"'{key}' is no list")
    return value
