"""Texts drawn from the templates and the lists, with the places of their names."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tools.names.lists import Country
from tools.names.templates import TEMPLATES

_FIELD = re.compile(r"\{(\w+)\}")
_LETTERS = "ABCDEFGHIJKLMNOPRSTVW"
KINDS = {
    **dict.fromkeys(("person", "first", "last"), "PERSON"),
    **dict.fromkeys(("city", "country", "street"), "LOCATION"),
    "org": "ORGANIZATION",
}


class Text(NamedTuple):
    text: str
    spans: list[tuple[int, int, str]]
    """Start, end and kind of each name. The kind `?` says that nobody knows."""


class Drawer:
    """Draws texts. Half of the names in a text are of its language's countries, the others of any country."""

    def __init__(
        self, countries: Mapping[str, Country], companies: Sequence[str], cities: Sequence[str], seed: int
    ) -> None:
        self._countries = countries
        self._companies = companies
        self._cities = cities
        self._random = random.Random(seed)
        self._named = [country for country in countries.values() if country.male and country.last]
        self._by_language = {
            language: [
                country for locale, country in countries.items() if locale[:2] == language and country.male
            ]
            for language in TEMPLATES
        }
        self._words = {
            language: [
                word.lower()
                for locale, country in countries.items()
                if locale[:2] == language
                for word in country.words
                if len(word) > 2
            ]
            for language in TEMPLATES
        }

    def text(self, language: str) -> Text:
        random_ = self._random
        template = random_.choice(TEMPLATES[language])
        parts: list[str] = []
        spans: list[tuple[int, int, str]] = []
        done = length = 0
        for field in _FIELD.finditer(template):
            before = template[done : field.start()]
            put = self._fill(field[1], language).strip() or "it"
            done = field.end()
            length += len(before)
            parts += [before, put]
            if (kind := KINDS.get(field[1])) is not None:
                spans.append((length, length + len(put), kind))
            length += len(put)
        text = "".join([*parts, template[done:]])
        if random_.random() < 0.02:
            text = text.upper() if len(text.upper()) == len(text) else text
        return Text(text, spans)

    def _fill(self, name: str, language: str) -> str:
        random_ = self._random
        if name.lower() == "word":
            word = random_.choice(self._words[language] or self._words["en"])
            return {"word": word, "Word": word.capitalize(), "WORD": word.upper()}[name]
        home = random_.choice(self._by_language[language])
        country = home if random_.random() < 0.5 else random_.choice(self._named)
        return _FILLS[name](self, country, home)

    def pick(self, values: Sequence[str], other: str = "Xenia") -> str:
        return self._random.choice(values) if values else other

    def first(self, country: Country) -> str:
        return self.pick(country.male if self._random.random() < 0.5 and country.male else country.female)

    def last(self, country: Country) -> str:
        if not country.last:
            return self.last(self._random.choice(self._named))
        last = self.pick(country.last)
        return f"{last}-{self.pick(country.last)}" if self._random.random() < 0.03 else last

    def person(self, country: Country) -> str:
        first, last = self.first(country), self.last(country)
        letter = self._random.choice(_LETTERS)
        drawn = self._random.random()
        if drawn < 0.62:
            return f"{first} {last}"
        if drawn < 0.72:
            return f"{first} {letter}. {last}"
        if drawn < 0.77:
            return f"{letter}. {last}"
        if drawn < 0.82:
            return f"{first} {self.first(country)} {last}"
        if drawn < 0.86:
            return f"{first} {last} {self.last(country)}"
        if drawn < 0.89:
            particle = self.pick(("de", "van", "von", "da", "di", "van der", "del", "de la", "bin", "al"))
            return f"{first} {particle} {last}"
        if drawn < 0.92:
            return f"{first} {last}".upper()
        return first if drawn < 0.96 else last

    def city(self, country: Country) -> str:
        values = country.cities if country.cities and self._random.random() < 0.4 else self._cities
        city = self.pick(values)
        return city.upper() if self._random.random() < 0.04 else city

    def country(self, country: Country) -> str:
        return self.pick(country.places or self._cities)

    def street(self, country: Country) -> str:
        if country.streets_whole and self._random.random() < 0.4:
            return self.pick(country.streets_whole)
        kind = self.pick(country.streets or ("Street", "Road", "Avenue"))
        name = self.last(country) if self._random.random() < 0.6 else self.city(country)
        return f"{name} {kind}" if kind[0].isupper() and len(name) % 2 else f"{kind} {name}"

    def org(self, country: Country) -> str:
        drawn = self._random.random()
        if drawn < 0.35:
            return self.pick(self._companies)
        if drawn < 0.55 and country.companies:
            return self.pick(country.companies)
        form = self.pick(country.forms or ("Inc.", "Ltd", "LLC", "Group", "GmbH", "S.A."))
        if drawn < 0.75:
            return f"{self.last(country)} {form}"
        if drawn < 0.82:
            return f"{self.last(country)} & {self.last(country)}"
        if drawn < 0.84:
            return f"{self.last(country)}, {self.last(country)} and {self.last(country)}"
        if drawn < 0.9:
            return self.org(country).upper()
        kind = self.pick(("University", "Bank", "Institute", "Hospital", "College", "Museum", "Council"))
        return f"{kind} of {self.city(country)}" if drawn < 0.95 else f"{self.city(country)} {kind}"

    def number(self) -> str:
        return str(self._random.choice((self._random.randrange(1, 200), self._random.randrange(1900, 99999))))


_FILLS: dict[str, Callable[[Drawer, Country, Country], str]] = {
    "person": lambda drawer, country, home: drawer.person(country),
    "first": lambda drawer, country, home: drawer.first(country),
    "last": lambda drawer, country, home: drawer.last(country),
    "city": lambda drawer, country, home: drawer.city(country),
    "country": lambda drawer, country, home: drawer.country(home),
    "street": lambda drawer, country, home: drawer.street(country),
    "org": lambda drawer, country, home: drawer.org(country),
    "job": lambda drawer, country, home: drawer.pick(home.jobs, "engineer"),
    "nation": lambda drawer, country, home: drawer.pick(home.nations, "March"),
    "number": lambda drawer, country, home: drawer.number(),
}
