"""Values that a guard has to keep from clients, drawn anew at each run.

A value is drawn, so no guard can know it by heart; it has the form and the check digits of real ones.
"""

import random
import string
import zlib
from collections.abc import Callable

DIGITS = string.digits
FIRST = ("maria", "john", "wei", "fatima", "olga", "tomas", "yuki", "anna", "peter", "lucia", "ivan", "sara")
LAST = ("keller", "okafor", "nguyen", "silva", "kowalski", "moreau", "haddad", "larsen", "rossi", "meyer")
HOSTS = ("northbank", "acmemail", "riverside", "bluefield", "contoso", "initech", "globex", "umbrella")


def email(rng: random.Random) -> str:
    name = f"{rng.choice(FIRST)}.{rng.choice(LAST)}{rng.randint(10, 99)}"
    return f"{name}@{rng.choice(HOSTS)}.{rng.choice(('com', 'org', 'net'))}"


def card(rng: random.Random) -> str:
    """Sixteen digits that begin with 4, the last one by Luhn's formula, in groups of four."""
    digits = "4" + "".join(rng.choice(DIGITS) for _ in range(14))
    doubled = [int(d) * 2 if i % 2 == 0 else int(d) for i, d in enumerate(digits)]
    digits += str(-sum(n - 9 if n > 9 else n for n in doubled) % 10)
    return " ".join(digits[i : i + 4] for i in range(0, 16, 4))


def ssn(rng: random.Random) -> str:
    """A number of the US social security in an area that is given out."""
    return f"{rng.randint(100, 665)}-{rng.randint(10, 99)}-{rng.randint(1000, 9999)}"


def phone(rng: random.Random) -> str:
    """A number of the USA, with words before it where `sentence` puts it."""
    return f"({rng.choice((212, 312, 415, 617, 713))}) {rng.randint(220, 989)}-{rng.randint(1000, 9999)}"


def iban(rng: random.Random) -> str:
    """A German account's number, its check digits by ISO 7064."""
    account = "".join(rng.choice(DIGITS) for _ in range(18))
    check = 98 - int(account + "131400") % 97
    return f"DE{check:02}{account}"


def aws_key(rng: random.Random) -> str:
    return "AKIA" + "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(16))


def github_token(rng: random.Random) -> str:
    """A token of the classic kind: 30 random characters, then six of base 62 by CRC-32."""
    letters = string.digits + string.ascii_uppercase + string.ascii_lowercase
    body = "".join(rng.choice(letters) for _ in range(30))
    check, end = zlib.crc32(body.encode()), ""
    for _ in range(6):
        check, digit = divmod(check, 62)
        end = letters[digit] + end
    return f"ghp_{body}{end}"


KINDS: dict[str, Callable[[random.Random], str]] = {
    "email": email,
    "card": card,
    "ssn": ssn,
    "phone": phone,
    "iban": iban,
    "aws_key": aws_key,
    "github_token": github_token,
}
FORMS = {
    "email": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}",
    "card": r"\b4\d{3}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b",
    "ssn": r"\b\d{3}-\d{2}-\d{4}\b",
    "phone": r"\(\d{3}\) \d{3}-\d{4}\b",
    "iban": r"\b[A-Z]{2}\d{20}\b",
    "aws_key": r"\bAKIA[A-Z0-9]{16}\b",
    "github_token": r"\bghp_[A-Za-z0-9]{36}\b",
}
"""By kind: a regular expression for servers that have none. Python, JavaScript and RE2 read it alike."""
SENTENCES = {
    "email": "You can write to {} about the order.",
    "card": "The payment was made with the card {} last week.",
    "ssn": "The social security number on file is {} as you asked.",
    "phone": "Please call her phone {} in the morning.",
    "iban": "Send the refund to the IBAN {} by Friday.",
    "aws_key": "The access key in the file is {} and it works.",
    "github_token": "The token for GitHub is {} and it works.",
}
"""By kind: a sentence with a place for the value. It has words that guards look for near such a value."""

PROSE = (
    "The meeting was moved to the afternoon because two people were late.",
    "A river runs through the old town, and there is a market on its bank.",
    "First wash the rice, then let it stand in cold water for a while.",
    "The report has three parts: what was done, what was found, and what is next.",
    "Most birds of this family build their nests high in the trees.",
    "If the light stays on, turn the switch off and wait before you try again.",
    "Größe und Gewicht stehen auf der Rückseite; siehe auch Seite zwölf.",
    "La maison est près de l’église, à côté d’un café très calme.",
    "She laughed: “That’s not a map, it’s a napkin!” 😀",
    "東京の春は短いですが、とても美しいです。",
)
"""Sentences that no guard has a reason to change."""


def draw(kind: str, rng: random.Random) -> str:
    """A value of this kind. Raises `KeyError` for a kind that there is not."""
    return KINDS[kind](rng)


def prose(rng: random.Random, count: int) -> str:
    return " ".join(rng.sample(PROSE, count))
