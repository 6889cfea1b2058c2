"""Other detectors of injections: a word list, TF-IDF, and open packages that need no model from a hub.

A package has its own threshold. That of TF-IDF is chosen on harmless texts that did not train it.
"""

import re
from collections.abc import Sequence

import yaml
from injectguard import scan as injectguard_scan
from prompt_inject_detect import scan as inject_detect_scan
from prompt_injection_sanitizer import sanitize
from prompt_injection_shield import is_suspicious
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks.injection.sets import Flags
from tools.injection.rows import CORPUS, Row

_WORDS = (
    *("ignore previous instructions", "ignore all previous", "ignore the above", "disregard"),
    *("forget everything", "new instructions", "system prompt", "your instructions", "your guidelines"),
    *("jailbreak", "developer mode", "do anything now", "you are now", "pretend to be", "act as"),
    *("no restrictions", "without restrictions", "override", "bypass", "reveal your"),
    *("do not tell the user", "do not mention this", "before you continue"),
)


def word_list() -> Flags:
    return _flags("|".join(map(re.escape, _WORDS)))


def prismguard_rules() -> Flags:
    """The patterns of the package's first tier. Its next tier is a model that it does not bring."""
    rules = yaml.safe_load((CORPUS / "authored/seed.yaml").read_text())["rules"]
    each = [_flags(rule["pattern"]) for rule in rules if rule["pattern_type"] == "regex"]
    return lambda text: any(flags(text) for flags in each)


def _flags(pattern: str) -> Flags:
    search = re.compile(pattern, re.IGNORECASE).search
    return lambda text: search(text) is not None


def tfidf(train: Sequence[Row], harmless: Sequence[str], false_rate: float) -> Flags:
    """TF-IDF of words and pairs of words with a logistic regression, on the rows that train the guard."""
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    table = vectors.fit_transform([row.text for row in train])
    regression = LogisticRegression(C=10, max_iter=300, class_weight="balanced")
    regression.fit(table, [row.is_injection for row in train])

    def score(text: str) -> float:
        return float(regression.decision_function(vectors.transform([text]))[0])

    scores = sorted(map(score, harmless))
    threshold = scores[int(len(scores) * (1 - false_rate))]
    return lambda text: score(text) > threshold


OPEN: dict[str, Flags] = {
    "injectguard 0.1.1": lambda text: bool(injectguard_scan(text).is_injection),
    "prompt-inject-detect 0.1.0": lambda text: bool(inject_detect_scan(text).is_injection),
    "prompt-injection-sanitizer 0.1.1": lambda text: bool(sanitize(text, source="x").was_modified),
    "prompt-injection-shield-py 0.1.0": lambda text: bool(is_suspicious(text)),
}
"""Packages of PyPI that need no download. `llm-guard`, `pytector` and prismguard's classifier load models
from a hub, `rebuff` asks a service, and `prompt-injection-defense` takes 10 seconds for 2,000 characters."""
