"""Folded text: without the differences of case, look-alikes, invisible characters and runs of white space.

Each character folds alone, to zero, one or several characters. So a text can be folded piece by piece, and a
match in the folded text can be cut out of the original.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

Fold = Literal["case", "compatibility", "invisible", "lookalikes", "space"]
FOLDS: tuple[Fold, ...] = get_args(Fold)

_LOOKALIKES = (
    "aаαꭺꓮɑ⍺ bвβьᏼꓐᑲ cсϲⅽꮯꓚᴄⲥ dԁꭰꓓɗᑯ eеεҽꭼꓰ℮ⲉɛ fғϝꓝẝք "
    "gԍɡꮐꓖցᶃ hнһηհꮋꓧԋ iіιıꭲꓲɩӏ⏐ jјϳյꭻꓙ kкκꮶꓗⲕ lⅼꮮꓡլ∣ǀⵏ "
    "mмμꮇꓟⲙ nνոꓠпռⲛ oоοօσꓳⲟჿ௦०০੦૦൦๐໐ഠ "
    "pрρꮲꓑⲣ qԛզգ rгꭱꮢꓣꭇⲅ sѕꮪꓢꜱ tтτꓔⲧ uսꓴʋ∪ "
    "vѵꮩꓦ∨ⴸ wԝաꮃꓪѡω xхχꓫ×ⲭ yуυүꭹꓬɣ zζꮓꓜ "
    """'‘’‚‛′ʹʻʼʽˈ´ "“”„‟″ -−˗ /⁄∕⧸ :∶ː .․۔܁"""
)
"""Groups: an ASCII character (letters in lower case) and its look-alikes. A letter that looks like a Latin
one in one case folds to it in both cases, so that words of its own script still match in any case."""
_LATIN = {char: group[0] for group in _LOOKALIKES.split() for char in group[1:]}
_NAMED = re.compile(
    r"(?:LATIN (?:SMALL|CAPITAL) LETTER|LATIN LETTER SMALL CAPITAL|REGIONAL INDICATOR SYMBOL LETTER"
    r"|NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL LETTER) (?:DOTLESS )?([A-Z])(?: WITH .*)?"
)
_MARKS = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef]"
)
"""Accents and other marks that any letter can have, without the vowel signs of scripts."""
WITHOUT_SPACES = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without spaces between words or, as Korean, before particles; for a character class."""
_FILLERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Invisible, though Unicode counts them as letters or symbols."""
_SPACES = re.compile("  +")


class Folding:
    """Folds text with some of `FOLDS`, using a table that fills itself.

    `case`: upper and lower case are the same. `compatibility`: a character becomes its Unicode compatibility
    decomposition (as in NFKC); this changes ligatures, full-width and mathematical letters. `invisible`:
    control characters and those of category Cf, as zero-width ones, are removed. `lookalikes`: letters of
    other scripts and dashes become the ASCII characters that they look like, and letters lose their accents.
    `space`: a run of white space becomes one space.
    """

    def __init__(self, folds: Iterable[Fold] = FOLDS) -> None:
        self._folds = frozenset(folds)
        self._table = _Table(self._folds)
        self.joins_spaces = "space" in self._folds
        """Whether a run of white space becomes one space."""
        self._ascii = str.lower if "case" in self._folds else str
        for code in range(128):
            self._table[code]

    def character(self, char: str) -> str:
        """Return the folded character; '' if folding removes it."""
        return self._table[ord(char)]

    def plain(self, text: str) -> str:
        """Return only the folded text; a run of white space keeps its number of spaces."""
        if text.isascii() and text.isprintable():
            return self._ascii(text)  # these characters differ from their folds only in case
        return text.translate(self._table)

    def evenly(self, text: str) -> str | None:
        """Return the folded text if each character of `text` folds to one; None if not."""
        folded = self._one_by_one(text)
        return None if folded is None or (self.joins_spaces and "  " in folded) else folded

    def _one_by_one(self, text: str) -> str | None:
        """As `evenly`, for a text whose spaces are not joined."""
        if text.isascii() and text.isprintable():
            return self._ascii(text)
        folded = text.translate(self._table)
        is_even = len(folded) == len(text) and (text.isascii() or self._table.uneven.isdisjoint(text))
        return folded if is_even else None

    def fold(self, text: str) -> tuple[str, Sequence[int]]:
        """Return the folded text, and for each of its characters the place in `text` that it comes from."""
        folded = self.plain(text)
        origins: Sequence[int] = range(len(text))
        if self._one_by_one(text) is None:
            origins, done = [], 0
            for uneven in self._table.uneven_in(text):
                at = uneven.start()
                origins += range(done, at)
                origins += [at] * len(self._table[ord(text[at])])
                done = at + 1
            origins += range(done, len(text))
        return _joined(folded, origins) if self.joins_spaces and "  " in folded else (folded, origins)


def _joined(text: str, origins: Sequence[int]) -> tuple[str, Sequence[int]]:
    """The text with each run of spaces as one, and the origins of its characters."""
    kept: list[int] = []
    done = 0
    for run in _SPACES.finditer(text):
        kept += origins[done : run.start() + 1]
        done = run.end()
    kept += origins[done:]
    return _SPACES.sub(" ", text), kept


def forms(text: str) -> set[str]:
    """Return the text as written, composed and decomposed: in Korean, folding leaves these forms apart."""
    return {text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)}


class _Table(dict[int, str]):
    """The table for `str.translate`. It computes a character's fold at the first use."""

    def __init__(self, folds: frozenset[Fold]) -> None:
        self._folds = folds
        self.uneven: set[str] = set()
        """The characters so far that do not fold to one character."""
        self._found = (0, re.compile("(?!)"))
        """The pattern that finds them, and how many it finds: it is made anew when there are more. Prompts
        are folded on threads."""

    def uneven_in(self, text: str) -> Iterator[re.Match[str]]:
        """The characters of a text that do not fold to one character. All were looked up before."""
        number, pattern = self._found
        if number < len(self.uneven):
            uneven = self.uneven.copy()
            pattern = re.compile(f"[{re.escape(''.join(uneven))}]")
            self._found = len(uneven), pattern
        return pattern.finditer(text)

    def __missing__(self, code: int) -> str:
        folded = _fold(chr(code), self._folds)
        if len(folded) != 1:
            self.uneven.add(chr(code))
        self[code] = folded
        return folded


def _fold(char: str, folds: frozenset[Fold]) -> str:
    if char.isspace():
        return " " if "space" in folds else char
    if "invisible" in folds and (unicodedata.category(char) in ("Cf", "Cc") or char in _FILLERS):
        return ""
    if "가" <= char <= "힣":
        return char  # a syllable, which decomposition would split into letters
    whole = char
    if "compatibility" in folds:
        char = unicodedata.normalize("NFKD", char)
    elif "lookalikes" in folds:
        char = unicodedata.normalize("NFD", char)
    if "lookalikes" in folds:
        char = _LATIN.get(whole) or "".join(map(_lookalike, char))
    return char.casefold() if "case" in folds else char


def _lookalike(char: str) -> str:
    if char.isascii():
        return char
    if _MARKS.match(char):
        return ""
    category = unicodedata.category(char)
    if category == "Pd":
        return "-"
    if category == "Nd":
        return str(unicodedata.decimal(char))
    latin = _LATIN.get(char.casefold())
    if latin is None and (named := _NAMED.fullmatch(unicodedata.name(char, ""))):
        latin = named[1].lower()
    if latin is None:
        return char
    return latin.upper() if char.isupper() else latin
