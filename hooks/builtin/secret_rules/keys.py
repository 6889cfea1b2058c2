"""Keys and tokens whose form shows the issuer, tokens that describe themselves, and private keys."""

import base64
import re

from hooks.builtin.secret_rules.randomness import entropy, looks_random
from hooks.detect.rules import Rule

_ISSUED = {
    # Each form is a prefix and the pattern after it.
    "AWS_ACCESS_KEY": (("(?:AKIA|ASIA|ABIA|ACCA)", r"[A-Z2-7]{16}"),),
    "AWS_BEDROCK_KEY": (("ABSK", r"[A-Za-z\d+/]{109,269}={0,2}"),),
    "GCP_KEY": (("AIza", r"[\w-]{35}"), ("GOCSPX-", r"[\w-]{28}"), (r"ya29\.", r"[\w-]{60,300}")),
    "GITHUB_TOKEN": (
        ("gh[pousr]_", r"[A-Za-z\d]{36,251}"),
        ("ghs_", r"\d{1,12}_eyJ[\w-]{10,500}+\.[\w-]{10,1500}+\.[\w-]{16,500}"),
        ("github_pat_", r"[A-Za-z\d]{22}_[A-Za-z\d]{59}"),
    ),
    "GITLAB_TOKEN": (
        ("gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|ffct|oas)-", r"[\w-]{20,300}(?:\.\w{2}\.?\w{7,9})?"),
        ("GR1348941", r"[\w-]{20}"),
    ),
    "ATLASSIAN_TOKEN": (("A[TC][AT]TT3", r"[\w=-]{100,250}"), ("ATBB", r"[A-Za-z\d]{32}")),
    "STRIPE_KEY": (("[sr]k_(?:live|test|prod)_", r"[A-Za-z\d]{16,120}"), ("whsec_", r"[A-Za-z\d+/]{32,64}")),
    "SQUARE_TOKEN": (("EAAA", r"[\w-]{60}"), ("sq0atp-", r"[\w-]{22}"), ("sq0csp-", r"[\w-]{43}")),
    "BRAINTREE_TOKEN": ((r"access_token\$", r"(?:production|sandbox)\$[\da-z]{16}\$[\da-f]{32}"),),
    "SHOPIFY_TOKEN": (("shp(?:at|ca|pa|ss)_", r"[\da-fA-F]{32}"),),
    "OPENAI_KEY": (("sk-(?:proj|svcacct|admin)-", r"[\w-]{74,200}"), ("sk-", r"[A-Za-z\d]{20,64}")),
    "ANTHROPIC_KEY": (("sk-ant-", r"[a-z]{3,6}\d\d-[\w-]{80,120}"),),
    "OPENROUTER_KEY": (("sk-or-v1-", r"[\da-f]{64}"),),
    "HUGGINGFACE_TOKEN": (("(?:hf|api_org)_", r"[A-Za-z\d]{34}"),),
    "NVIDIA_KEY": (("nvapi-", r"[\w-]{60,70}"),),
    "CEREBRAS_KEY": (("csk-", r"[\da-z]{48}"),),
    "TOGETHER_KEY": (("tgp_v1_", r"[\w-]{43}"),),
    "GROQ_KEY": (("gsk_", r"[A-Za-z\d]{52}"),),
    "REPLICATE_TOKEN": (("r8_", r"[A-Za-z\d]{37}"),),
    "XAI_KEY": (("xai-", r"[A-Za-z\d]{80}"),),
    "PERPLEXITY_KEY": (("pplx-", r"[A-Za-z\d]{48,56}"),),
    "SLACK_TOKEN": (
        (r"xox[a-eoprs](?:\.xox[bp])?-", r"(?:\d{1,14}-){1,3}[A-Za-z\d]{16,200}"),
        ("xapp-", r"\d-[A-Z\d]{8,14}-\d{8,16}-[\da-f]{64}"),
        (r"hooks\.slack\.com/", r"(?:services|workflows|triggers)(?:/[A-Z\d]{8,20}){2}/[A-Za-z\d]{24,40}"),
    ),
    "DISCORD_TOKEN": ((r"[MNO][\w-]{23,27}\.", r"[\w-]{6}\.[\w-]{27,38}"),),
    "TELEGRAM_TOKEN": ((r"\d{8,10}:", r"AA[\w-]{33}"),),
    "TWILIO_KEY": (("SK", r"(?:[\da-f]{32}|[\dA-F]{32})"),),
    "SENDGRID_KEY": ((r"SG\.", r"[\w-]{22}\.[\w-]{43}"),),
    "MAILGUN_KEY": (("key-", r"[\da-f]{32}"),),
    "NPM_TOKEN": (("npm_", r"[A-Za-z\d]{36}"),),
    "PYPI_TOKEN": (("pypi-AgE", r"[\w-]{80,500}"),),
    "DIGITALOCEAN_TOKEN": (("do[opr]_v1_", r"[\da-f]{64}"),),
    "DATABRICKS_TOKEN": (("dapi", r"[\da-f]{32}(?:-\d)?"),),
    "VAULT_TOKEN": ((r"hv[sbr]\.", r"[\w-]{24,300}"),),
}  # fmt: skip
_BEFORE, _BEHIND = r"(?<![A-Za-z\d])", r"(?![\w-])"


def _is_drawn(text: str) -> bool:
    """Whether `text` looks random. A row of x, as in examples, and words that begin like a key do not."""
    is_wordy = text.startswith(("sk-", "gl", "hv"))
    return entropy(text) >= 2.5 and (not is_wordy or looks_random(re.split("[-.]", text, maxsplit=1)[-1]))


def is_jwt(text: str) -> bool:
    """Whether the first part is the JSON object of a JOSE header (RFC 7519)."""
    header = text.partition(".")[0]
    try:
        read = base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))
    except ValueError:
        return False
    return read.startswith(b"{") and b'"alg"' in read


_PART = r"\.[\w-]"
_SIGNED = rf"{_PART}{{4,8000}}+(?:{_PART}{{16,1000}}+)?+"
_ENCRYPTED = rf"{_PART}{{0,1000}}+{_PART}{{8,64}}+{_PART}{{1,8000}}+{_PART}{{16,100}}+"
JWT = Rule(
    "JWT",
    # RFC 7515, with two parts without a signature; RFC 7516.
    rf"(?a){_BEFORE}eyJ[\w-]{{10,1000}}+(?:{_ENCRYPTED}|{_SIGNED}){_BEHIND}",
    check=is_jwt,
)

AWS_SECRET_KEY = Rule(
    "AWS_SECRET_KEY",
    r"(?<![A-Za-z\d/+])(?a:[A-Za-z\d/+]{40})(?![A-Za-z\d/+=])",
    near=r"aws|secret[ _]?access|akia|asia",
    check=lambda text: entropy(text) >= 4 and not text.islower() and not text.isupper(),
)
AZURE_KEYS = (
    Rule(
        "AZURE_KEY",
        _BEFORE + r"(?a:[A-Za-z\d+/]{86})==(?!=)",
        near=r"azure|account[ _]?key|storage|cosmos|primary",
    ),
    Rule("AZURE_KEY", r"(?<=SharedAccessKey=)(?a:[A-Za-z\d+/]{43})=(?!=)"),
    Rule("AZURE_KEY", r"(?<=[?&]sig=)(?a:[A-Za-z\d%+/]{40,90})(?:%3[Dd]|=)(?![\w%])"),
    Rule("AZURE_KEY", r"(?a:(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~-]))", check=looks_random),
)

_BREAK = r"""(?:[\\`][nrt]|[\s"'`>|#*+,;^/\\.%:()\[\]→│-]|</?[a-z]{1,6} ?/?>|(?<!\w)\d{1,5}(?!\w)){1,64}+"""
"""The text between two lines of a key: indents, quotes, numbers, comments, joined strings, JSON escapes."""
_BASE64 = r"[A-Za-z0-9/+=]"
_KIND = r"(?:[A-Z0-9]{1,10} ){0,3}PRIVATE KEY(?: BLOCK)?"
PRIVATE_KEY = Rule(
    "PRIVATE_KEY",
    # RFC 7468. A key that has begun ends at its end line, after any other text.
    rf"-----BEGIN {_KIND}-----(?:{_BREAK}[A-Z][\w-]{{2,20}}: [^\n\\]{{0,80}}){{0,4}}+"
    rf"(?:{_BREAK}[A-Za-z/+=]{{16,80}}+(?!\d)){{0,3}}+(?:{_BREAK})?(?=[A-Za-z/+=]{{0,79}}\d){_BASE64}{{16}}",
    until=rf"-----END {_KIND}-----",
)

KEYS = (
    *(
        Rule(entity, f"(?a){_BEFORE}{prefix}{rest}{_BEHIND}", check=_is_drawn)
        for entity, forms in _ISSUED.items()
        for prefix, rest in forms
    ),
    AWS_SECRET_KEY,
    *AZURE_KEYS,
    JWT,
    PRIVATE_KEY,
)
