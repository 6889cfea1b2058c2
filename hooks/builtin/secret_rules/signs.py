"""Names of values, and the text between a name and its value: a sign such as `=`, a type, quotes, a verb."""

from collections.abc import Iterable

CLOSING = r"""["'`*”’)\]\\ \t]{0,40}"""
"""The text between a name and the sign."""
_TYPE = r"(?::?[ ](?:string|str|text|std::string|char ?\*)[ ]{0,4})?"
_ATTRIBUTE = r"""[\w:.-]{1,20}=["'][^"'<>\n]{0,40}["']\s{0,4}"""
_KEY_OF_VALUE = (
    rf"""(?:(?:[,;]|:[ ]?\{{)?\s{{0,20}}(?:{_ATTRIBUTE}){{0,2}}[-]?["' ]{{0,4}}value["']?\s?[:=]"""
    rf"""|(?:</[\w:.-]{{1,20}}|(?:{_ATTRIBUTE}){{0,2}})>\s{{0,20}}<(?:(?:\w{{1,8}}:)?value|string)>)"""
)
"""The name of the value itself, after the name: a key of JSON or YAML, an attribute or an element of XML."""
PLAINLY_SAYS = (
    rf"{_TYPE}(?:=>|[:?.+|!]{{0,3}}={{1,3}}|:{{1,3}}|：|(?<=[ ])\|(?=[ ])|>|{_KEY_OF_VALUE}"
    r"|[ ](?:is|was|to|ist|lautet|es|est|è|é|är|er|jest|equals)(?:[ ](?:now|set to|still))?(?=[: \t])"
    r"|是|は|는|为|為)"
)
SAYS = rf"(?:{PLAINLY_SAYS}|{_TYPE}(?:->|\|\||\||[,(](?=[ ]?[\"'`])))"
OPENING = r"""[@bru]{0,2}["'`*“‘(\\: \t\r\n]{0,40}(?:```\w{0,12}\r?\n)?"""
"""The text between the sign and the value."""
SIGN = rf"{CLOSING}{SAYS}{OPENING}"
OF_WHAT = r"(?:[ ](?:for|of|to|on|für|de|para|pour|per|von)[ ][\w .@'-]{1,40}|[ ]?\([^()\n]{1,30}\))?"
FEIGNED = r"(?<![a-z])(?:non|fake|dummy|mock|sample|example|bogus|invalid)(?:[_-]|(?-i:(?=[A-Z])))\w{0,24}"
"""The beginning of a name whose value is not a secret by its own words: fake_token, nonMatchingToken."""
# The look-behind of 200 excludes places far into a long word, where every "=" could begin a password.
BEFORE = r"""(?<=["'`*“‘(\\ \t\n=:：|>,是はは는为為])(?<![!-~]{200})(?![*(\[=:])"""


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
