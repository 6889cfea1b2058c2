"""Names of values, and the text between a name and its value: a sign such as `=`, a type, quotes, a verb."""

from collections.abc import Iterable

CLOSING = r"""["'`*”’)\]\\ \t]{0,40}"""
"""The text between a name and the sign."""
_TYPE = r"(?::?[ ](?:string|str|text|std::string|char ?\*)[ ]{0,4})?"
_KEY_OF_VALUE = r"""[,;]?\s{0,20}[-]?["' ]{0,4}value["']?\s?[:=]"""
PLAINLY_SAYS = (
    rf"{_TYPE}(?:=>|[:?.+|!]{{0,3}}={{1,3}}|:{{1,3}}|：|(?<=[ ])\|(?=[ ])|>|{_KEY_OF_VALUE}"
    r"|[ ](?:is|was|to|ist|lautet|es|est|è|é|är|er|jest|equals)(?:[ ](?:now|set to|still))?(?=[: \t])"
    r"|是|は|는|为|為)"
)
SAYS = rf"(?:{PLAINLY_SAYS}|{_TYPE}(?:->|\|\||\||[,(](?=[ ]?[\"'`])))"
OPENING = r"""[@bru]{0,2}["'`*“‘(\\: \t\r\n]{0,40}(?:```\w{0,12}\r?\n)?"""
"""The text between the sign and the value."""
SIGN = rf"{CLOSING}{SAYS}{OPENING}"


def any_of(names: Iterable[str]) -> str:
    """Return a pattern for any of the names, which are patterns without a `|` outside of brackets. They are
    grouped by their last letter: a look-behind reads from its end, and leaves most out at their first letter.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name[-1] if name[-1].isalpha() else "", []).append(name)
    groups = (
        f"(?:{'|'.join(name.removesuffix(last) for name in same)}){last}" for last, same in alike.items()
    )
    return f"(?:{'|'.join(groups)})"
