"""Signs that a text without a scheme is an address: the ends of names, and numbers of hosts."""

import re
from ipaddress import AddressValueError, IPv6Address

_COUNTRIES = (
    "a[cdefgilmoqrstuwxz]|b[abdefghijmnorstvwyz]|c[acdfghiklmnoruvwxyz]|d[ejkmoz]|e[cegrstu]|f[ijkmor]"
    "|g[abdefghilmnpqrstuwy]|h[kmnrtu]|i[delmnoqrst]|j[emop]|k[eghimnprwyz]|l[abcikrstuvy]"
    "|m[acdeghklmnopqrstuvwxyz]|n[acefgilopruz]|om|p[aefghklmnrstwy]|qa|r[eosuw]|s[abcdeghijklmnorstuvxyz]"
    "|t[cdfghjklmnortvwz]|u[agksyz]|v[aceginu]|w[fs]|y[et]|z[amw]"
)
_OF_SCRIPTS = (
    "рф|рус|бел|срб|мкд|укр|бг|ею|қаз|мон|сайт|онлайн|орг|ком|дети|москва|ελ|ευ|հայ|გე|ישראל|קום"
    "|ایران|امارات|السعودية|السعوديه|مصر|المغرب|الجزائر|تونس|عمان|قطر|الاردن|فلسطين|سورية|شبكة|موقع|پاکستان"
    "|भारत|বাংলা|ভারত|இந்தியா|இலங்கை|ලංකා|ไทย|ລາວ|中国|中國|台湾|台灣|香港|澳門|澳门|新加坡|한국|닷컴|닷넷"
    "|网络|公司|在线|中文网|网址|商城|网站|政务|公益|我爱你|集团|みんな|コム|世界|游戏|娱乐"
)
_TOP = (
    rf"(?:com|org|net|edu|gov|mil|int|info|biz|name|pro|app|dev|xyz|online|site|website|top|shop|store|club"
    rf"|cloud|tech|live|page|link|click|work|space|zip|mov|xn--[a-z0-9-]{{2,59}}|{_COUNTRIES}|{_OF_SCRIPTS})"
)
"""Ends of names that show, without a scheme, that a text is an address."""
DOTS = ".\u3002\uff0e\uff61"
"""Characters that IDNA takes for a dot."""
LABELS = r"(?:[a-z0-9_-]{1,63}\.){1,9}"
_LABELS = rf"(?:[\w-]{{1,63}}[{DOTS}]){{1,9}}"
_LAST = r"[^\W\d_](?:[\w-]{0,61}\w)"
_FOUR = r"\d{1,3}(?:\.\d{1,3}){3}"
_ODD_PART = r"(?:0x[\da-f]{1,8}|\d{1,11})"
_ODD = rf"{_ODD_PART}(?:\.{_ODD_PART}){{1,3}}"
NUMBERS = rf"{_ODD}|0x[\da-f]{{6,8}}|\d{{8,12}}"
"""The numbers of hosts, in an address that has no scheme."""
_NUMBER = r"(?:\d{8,10}|0x[\da-f]{6,8}|0[0-7]{9,12})"
_QUERY = r"[^\s?]*\?[^\s=]*="

is_name = re.compile(
    rf"""
      {_LABELS}(?:{_TOP}(?![\w.-])|{_TOP}\.(?=[/?:\#])|{_LAST}\.?(?::\d+)?/{_QUERY})
    | {_FOUR}(?::\d{{1,5}})?[/?\#](?!(?<=/)\d{{1,2}}\Z)      # and not the length of a network's prefix
    | (?:{_NUMBER}|(?=[\da-fx.]*?(?:\b0x|\b0\d|\d{{4}})){_ODD})/{_QUERY}  # as inet_aton reads them
    """,
    re.IGNORECASE | re.VERBOSE,
).match
"""Whether a text with a path is an address of a host, which has no scheme."""
is_host = re.compile(
    rf"""
      (?:[^\s/?\#@<>"'()\[\]]{{1,64}}@)?
      (?:{_LABELS}(?:{_TOP}\.?(?![\w-])|[\w-]{{1,63}}\.?[/?:\#])|{_FOUR}(?![\w.])|{_NUMBER}[/?:]|\[[\da-f]*:)
    """,
    re.IGNORECASE | re.VERBOSE,
).match
"""Whether a text after `//` is a host."""
_NAME_BEFORE = re.compile(rf"(?:.*[^\w{DOTS}-])?(?P<name>[\w{DOTS}-]*)\Z", re.DOTALL).match
_LONGEST_NAME = 255
_NO_BEGINNING = tuple("@/:\\+")


def begin_of_name(text: str, place: int) -> int | None:
    """The beginning of the name that goes on at `place`. None: it is a part of something else."""
    left = max(0, place - _LONGEST_NAME)
    found = _NAME_BEFORE(text[left:place])
    begin = left + found.start("name") if found else place
    return None if text[begin - 1 : begin] in _NO_BEGINNING else begin


def is_ip6(text: str) -> bool:
    try:
        IPv6Address(text.partition("]")[0].lstrip("["))
    except AddressValueError:
        return False
    return True
