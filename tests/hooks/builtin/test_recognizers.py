"""Presidio's YAML of pattern recognizers, read by the guard `pii`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hooks.builtin.pii import Pii
from tests.hooks.builtin.streams import said

BADGE = {
    "name": "Badges",
    "supported_entity": "BADGE",
    "patterns": [{"name": "badge", "regex": r"\bbdg-\d{4}\b", "score": 0.6}],
}
WEAK = {
    "name": "Desks",
    "supported_entity": "DESK",
    "supported_languages": [{"language": "de", "context": ["Schreibtisch"]}, "en"],
    "patterns": [{"name": "weak", "regex": r"\b\d{3}[a-z]\b", "score": 0.1}],
    "context": ["desk"],
}
WORDS = {"name": "Titles", "supported_entity": "TITLE", "deny_list": ["Dr.", "Prof."]}
OFF = {"name": "Off", "enabled": False, "type": "predefined"}


def guard(folder: Path, *recognizers: Any, **more: Any) -> Pii:
    file = folder / "recognizers.yaml"
    file.write_text(yaml.safe_dump({"recognizers": list(recognizers), **more}), encoding="utf-8")
    return Pii(entities=["EMAIL_ADDRESS"], recognizers=file)


def test_patterns_and_deny_lists_find_what_they_name(tmp_path: Path) -> None:
    made = guard(tmp_path, BADGE, WORDS, OFF)
    text = "Ask prof. Lee (BDG-1234) or ann@initech.org; bdg-12345 is Dr.No"
    released = "Ask [TITLE] Lee ([BADGE]) or [EMAIL_ADDRESS]; bdg-12345 is Dr.No"
    assert said(made, [text]) == said(made, list(text)) == released


def test_a_weak_pattern_counts_after_a_context_word_only(tmp_path: Path) -> None:
    made = guard(tmp_path, WEAK)
    assert said(made, list("It is 123a.")) == "It is 123a."
    assert said(made, list("The desk is 123a.")) == "The desk is [DESK]."
    assert said(made, list("Mein SCHREIBTISCH: 123A")) == "Mein SCHREIBTISCH: [DESK]"


def test_flags_are_presidios_or_the_files_own(tmp_path: Path) -> None:
    assert said(guard(tmp_path, BADGE, global_regex_flags=0), ["bdg-1234 BDG-1234"]) == "[BADGE] BDG-1234"


@pytest.mark.parametrize(
    ("recognizer", "says"),
    [
        ({**BADGE, "patterns": [{"regex": r"\d+", "score": 1}]}, "Badges: a match of pattern.*has no bound"),
        ({**BADGE, "patterns": [{"regex": r"(?R)", "score": 1}]}, "Badges: .*cannot be looked for"),
        ({**BADGE, "patterns": [{"regex": "(", "score": 1}]}, "Badges: "),
        ({**BADGE, "patterns": [{"regex": "a", "score": "high"}]}, "Badges: the score 'high' is no number"),
        ({**BADGE, "patterns": [{"score": 1}]}, "Badges: each of 'patterns' needs a 'regex'"),
        ({**BADGE, "patterns": "a"}, "Badges: 'patterns' is no list"),
        (
            {**WEAK, "supported_languages": ["en"], "context": []},
            "Desks: pattern 'weak' has a score below 0.4",
        ),
        ({"name": "CreditCardRecognizer", "type": "predefined"}, "CreditCardRecognizer: it is no pattern"),
        ("CreditCardRecognizer", "'CreditCardRecognizer' is no pattern recognizer"),
        ({"name": "Nothing", "supported_entity": "X"}, "Nothing: it has neither patterns nor a deny_list"),
        ({"name": "Nameless", "deny_list": ["a"]}, "Nameless: it needs a 'supported_entity'"),
        ({**WORDS, "validate": "luhn"}, "Titles: validate cannot be kept"),
        (OFF, "are disabled"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(tmp_path: Path, recognizer: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"recognizers: .*{says}"):
        guard(tmp_path, recognizer)


def test_a_file_without_recognizers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no list 'recognizers'"):
        guard(tmp_path)
    with pytest.raises(ValueError, match="global_regex_flags"):
        guard(tmp_path, BADGE, global_regex_flags=64)
    (tmp_path / "recognizers.yaml").write_text("recognizers: [")
    with pytest.raises(ValueError, match=r"recognizers: .*recognizers\.yaml is no YAML: "):
        Pii(recognizers=tmp_path / "recognizers.yaml")
