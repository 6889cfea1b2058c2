"""The test strings of gitleaks, read from a checkout of its repository."""

import base64
import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import regex

from benchmarks.cases.case import Case, with_value
from benchmarks.cases.go_source import Call, assigned, functions
from benchmarks.cases.strings import drawn

_NAMED = (
    *("anthropic", "atlassian", "aws", "azure", "databricks", "digitalocean", "discord-api", "gcp", "github"),
    *(
        "gitlab",
        "huggingface",
        "jwt",
        "mailgun-private",
        "npm",
        "openai",
        "perplexity",
        "private-key",
        "pypi",
    ),
    *("sendgrid", "shopify", "slack", "square-access", "stripe", "telegram", "twilio", "vault"),
)
"""The beginnings of the ids of rules for the issuers that Weir named first. Their keys are a group."""
_NEEDS_NAME = ("[ \\t\\w.-]{0,20}", "curl", "kind:", "generic")
"""Texts in the pattern of a rule, or in its id, that finds a key only with the issuer's name before it."""
_SENTENCES = (
    "The value in use today is {} and it works.",
    "Please note {} for the next run.",
    "It printed {}\nand then stopped.",
)
_MOST = 15
"""Most test strings of one rule that are taken."""


@dataclass(frozen=True)
class GitleaksRule:
    """A rule of the configuration, by which the secret in a test string is found."""

    name: str
    pattern: "regex.Pattern[str]"
    group: int
    entropy: float

    def secret(self, text: str) -> str | None:
        """Return the secret of the first match in `text`."""
        found = self.pattern.search(text)
        if found is None:
            return None
        group = next((group for group in found.groups() if group), found[0])
        return str(found[self.group] if self.group else group)

    @property
    def needs_name(self) -> bool:
        source = f"{self.name} {self.pattern.pattern}"
        return any(text in source for text in _NEEDS_NAME)


def rules(checkout: Path) -> dict[str, GitleaksRule]:
    """Return the rules of the configuration by their ids."""
    read = tomllib.loads((checkout / "config/gitleaks.toml").read_text())
    named: dict[str, GitleaksRule] = {}
    for rule in read["rules"]:
        if "regex" in rule:
            pattern = _compiled(rule["regex"])
            named[rule["id"]] = GitleaksRule(
                rule["id"], pattern, rule.get("secretGroup", 0), rule.get("entropy", 0)
            )
    return named


def _compiled(pattern: str) -> "regex.Pattern[str]":
    pattern = pattern.replace(r"\z", r"\Z")
    try:
        return regex.compile(pattern, regex.V1 | regex.MULTILINE)
    except regex.error:
        return regex.compile(pattern, regex.MULTILINE)


def cases(checkout: Path, seed: int = 1) -> Iterator[Case]:
    """Return a case of each test string, and of each key without the words around it."""
    known = rules(checkout)
    for path in sorted((checkout / "cmd/generate/config/rules").glob("*.go")):
        source = path.read_text()
        for name, body in functions(source):
            rng = random.Random(f"{seed} {path.name} {name}")
            calls = _calls(rng)
            around = {**_CONSTANTS, **assigned(_outside(source), calls)}
            values = assigned(_expanded(body), calls, around)
            rule = known.get(str(_field(values.get("r"), "RuleID")))
            if rule is None:
                continue
            tested = values.get("used") or {}
            yield from _positives(rule, _group(rule.name), _texts(tested.get("tps")), rng)
            for text in _texts(tested.get("fps")):
                yield Case("no value, secrets", rule.name, text)


def _group(name: str) -> str:
    if name.startswith(("generic", "curl")):
        return "after a word"
    return "keys of named issuers" if name.startswith(_NAMED) else "keys of other issuers"


def _positives(rule: GitleaksRule, group: str, texts: list[str], rng: random.Random) -> Iterator[Case]:
    secrets: list[str] = []
    for text in texts if len(texts) <= _MOST else rng.sample(texts, _MOST):
        secret = rule.secret(text)
        if secret:
            yield with_value(group, rule.name, text, secret)
            secrets.append(secret)
    if not rule.needs_name:
        for secret in sorted(set(secrets))[:5]:
            text = rng.choice(_SENTENCES).format(secret)
            yield with_value("bare keys", rule.name, text, secret)


_CONSTANTS = {"config.AllowlistMatchOr": "or", "config.AllowlistMatchAnd": "and", "DefaultStopWords": None}


def _outside(source: str) -> str:
    """The variables of a file that stand outside its functions."""
    return source.partition("\nfunc ")[0]


def _expanded(body: str) -> str:
    """Return the body with a single assignment for tests that are written where they are used."""
    return body.replace("return utils.Validate(", "used := utils.Validate(")


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    return [text for text in value or () if isinstance(text, str) and text]


_IDENTIFIED = (
    '{i}Token="{s}"',
    '{i}Token = "{s}"',
    "{i}Token={s}",
    "{i}Token = {s}",
    '{{\n    "{i}_token": "{s}"\n}}',
    '{{"config.ini": "{I}_TOKEN={s}\\nBACKUP_ENABLED=true"}}',
    "<{i}Token>\n    {s}\n</{i}Token>",
    "{i}_token: {s}",
    "{i}_token: '{s}'",
    '{i}_token: "{s}"',
    'string {i}Token = "{s}";',
    'var {i}Token string = "{s}"',
    '{i}Token := "{s}"',
    "{i}Token := `{s}`",
    'String {i}Token = "{s}";',
    'var {i}Token = "{s}"',
    '${i}Token .= "{s}"',
    "{i}Token = '{s}'",
    'System.setProperty("{I}_TOKEN", "{s}")',
    '  "{i}Token" => "{s}"',
    '{i}_TOKEN = "{s}"',
    '{i}_TOKEN := "{s}"',
    '{i}_TOKEN ::= "{s}"',
    '{i}_TOKEN :::= "{s}"',
    '{i}_TOKEN ?= "{s}"',
)
"""The forms in which a configuration and a program write a token down."""


def _samples(name: str, secret: str) -> list[str]:
    return [form.format(i=name, I=name.upper(), s=secret) for form in _IDENTIFIED]


def _calls(rng: random.Random) -> dict[str, Call]:
    """The helper functions of the rules: texts around a token, and strings drawn from a pattern."""

    def repeated(members: str, size: str) -> str:
        return f"{members}{{{size}}}"

    def validated(rule: Any, tps: Any = None, fps: Any = None) -> dict[str, Any]:
        return {"tps": tps, "fps": fps}

    calls: dict[str, Call] = {
        "utils.GenerateSampleSecrets": _samples,
        "utils.GenerateSampleSecret": lambda name, secret: f'{name}_api_token = "{secret}"',
        "secrets.NewSecret": lambda pattern: drawn(pattern, rng),
        "secrets.NewSecretWithEntropy": lambda pattern, entropy: drawn(pattern, rng),
        "utils.Hex8_4_4_4_12": lambda: "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "utils.GenerateUniqueTokenRegex": lambda *given: None,
        "utils.GenerateSemiGenericRegex": lambda *given: None,
        "utils.MergeRegexps": lambda *given: None,
        "regexp.MustCompile": lambda pattern: None,
        "fmt.Sprintf": _formatted,
        "strings.ToUpper": str.upper,
        "utils.Validate": validated,
        "utils.ValidateWithPaths": validated,
        "b64.StdEncoding.EncodeToString": lambda text: base64.b64encode(text.encode()).decode(),
        "base64.StdEncoding.EncodeToString": lambda text: base64.b64encode(text.encode()).decode(),
        "newPlausibleSecret": lambda pattern: drawn(pattern, rng),
        "generateTestValues": partial(_encoded_jwts, rng),
    }
    for name, members in (
        ("Numeric", "[0-9]"),
        ("Hex", "[a-f0-9]"),
        ("AlphaNumeric", "[a-z0-9]"),
        ("AlphaNumericExtendedShort", "[a-z0-9_-]"),
        ("AlphaNumericExtended", r"[a-z0-9=_\-]"),
        ("AlphaNumericExtendedLong", r"[a-z0-9\/=_\+\-]"),
    ):
        calls[f"utils.{name}"] = partial(repeated, members)
    return calls


def _formatted(form: str, *values: Any) -> str:
    for value in values:
        form = regex.sub("%[svd]", lambda _, value=value: str(value), form, count=1)
    return form


def _encoded_jwts(rng: random.Random) -> list[str]:
    """Tokens that were encoded in base64 once more."""
    made: list[str] = []
    for header in ('{"alg":"ES256"}', '{"alg":"none"}', '{"typ":"JWT"}', '{"kid":"k1","alg":"RS256"}'):
        parts = [
            _url64(header),
            _url64('{{"sub":"{}"}}'.format(drawn("[a-z]{8}", rng))),
            drawn(r"[\w-]{43}", rng),
        ]
        token = ".".join(parts).encode()
        made += [base64.b64encode(token).decode(), base64.urlsafe_b64encode(token).decode()]
    return made


def _url64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
