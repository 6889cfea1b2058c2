"""Texts with addresses in every writing that some reader takes: drawn from a grammar, and mutated."""

import random

_HOSTS = (
    *("evil.com", "evil.com", "evil.com", "evil.com.", "évil.com", "ｅvil.com", "evil\u3002com"),
    *("e\xadvil.com", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "93.184.216.34"),
    *("[2001:db8::1]", "[::1]", "evil", "evil\\.com", "evil%2ecom", "%65vil.com", "ev\til.com"),
    *("ev\nil.com", "evil&period;com", "&#101;vil.com", "ok.example@evil.com", "ok.example\\@evil.com"),
    *("ok.example:x@evil.com", 'ok.example"@evil.com', 'ok.example"xx@evil.com'),
    *("ok.example'@evil.com", "ok.example`@evil.com", "ok.example\xa0@evil.com"),
    *("ok.example\u3000x@evil.com", "ok.example\x0b@evil.com", "ok.example.evil.com"),
    *("ok.example\\.evil.com", "ok.example).evil.com", "ok.example\\).evil.com"),
    *("ok.example|@evil.com", "ok.example\n.evil.com", "ok.example\n  .evil.com"),
    *("ok.example\n> .evil.com", "ok.example&#64;evil.com", "ok.example%40evil.com", "ok.example"),
    *("ok.example", "sub.ok.example", "ok.example;@evil.com", "ok.example,x@evil.com", "例え.jp"),
    *("пример.рф", "[::ffff:93.184.216.34]", "user:pw@evil.com", "evil.com:8080", "ok.example:8080"),
)
_BEFORE_HOST = (
    *("https://", "https://", "http://", "//", "//", "//", "http:", "https:", "http:/", "https:/"),
    *("https:///", "https\\://", "http\\:", "https\\:", "http:\\\\", "https:\\/\\/", "\\\\", "/\\"),
    *("\\/", "\\/\\/", "///", "////", "HTTPS://", "hTTp:", "ht\ntps://", "https:\n//", "ht\ttp:"),
    *("/\t/", "/\n/", "/\n> /", "/\n  /", "&#104;ttps://", "&#104ttps://", "&#x68;ttp:"),
    *("https&colon;//", "https&#58;//", "https&#58//", "http&#x3a", "&#47;/", "&#47/", "&sol;&sol;"),
    *("/&#47;", "&bsol;/", "&Tab;//", "&#1;//", "&NewLine;https://", "&#0000047;/", "%2f%2f"),
    *("https%3a//", "\\68ttps://", "\\2f/", "\\2f \\2f ", "/\\2f ", "ftp://", "ws:", "wss://", ""),
    *("javascript:", "data:text/html,", "java\nscript:", "vbscript:", "file://", "intent:", "//x@"),
    *("\xa0//", "www.", "h&Tab;ttps://", "https:&NewLine;//", "htt&#112;s:", "https:\\\n//"),
    *("https\\:\\/\\/", "\\https://"),
)
_PATHS = (
    *("/x?d=1", "/x?d=1", "/x", "", "?d=1", "#d", "/", "\\x", "/a(b)c", "/a b", "/x/?q=//evil.com"),
    *(";x", ":80/x"),
)
_BLANKS = (
    *("", "", "", "", " ", "\n", "\t", "\r\n", "\x0c", "\x0b", "  \n ", "\n\n", "\n> ", "\n>", "\n>> "),
    *("\n  > ", "\n    ", "\xa0", "\u2003", "\u2028", "\u2029", "\u3000", "\ufeff", "\u1680", "\u202f"),
    *("\x85", "\x1c", "         ", "\n> \n> \n> ", " \xa0\n", "&#32;", "&Tab;", "&NewLine;", "&nbsp;"),
    *("&#1;", "&#160;", "\x00", "\x01", "\\\n", "\\ ", "\u200b", "> "),
)
_LONG_BLANKS = (
    " " * 300,
    " " * 700,
    "\t" * 1500,
    "\n" * 600,
    "\n> " * 200,
    "\u3000" * 600,
    " \n" * 40,
    "\n>  " * 20,
)
_ATTRIBUTES = (
    *("src", "href", "srcset", "ping", "poster", "data", "action", "formaction", "background"),
    *("manifest", "xlink:href", "imagesrcset", "attributionsrc", "cite", "longdesc", "lowsrc"),
    *("dynsrc", "codebase", "classid", "profile", "usemap", "icon", "archive", "SRC", "hReF"),
    *("itemtype", "itemid", "code"),
)
_TAGS = (
    *("img", "a", "img", "a", "video", "object", "form", "button", "body", "table", "html"),
    *("svg><image", "svg><use", "link rel=stylesheet", "script", "iframe", "embed", "source", "base"),
    *("area", "q", "applet", "track", "input", "img/", "img\n", "img alt='>'", 'a title="', "base"),
    *("svg><a", "math><mi", "frame", "param", "image"),
)
_PREFIXES = (
    *("", "", "", "> ", ">", "- ", "1. ", "> > ", "> - ", "- > ", "  ", "* ", "    ", "# ", "| ", "a "),
    "\\",
)
_AROUND = (
    *("", "", "Look: ", "a\n\n", "[b]: /x\n\n", "**", "_", "(", '"', "'", "\u201c", "é", "中", "<p>"),
    *("<div>\n", "`"),
)


def _address(rng: random.Random) -> str:
    return rng.choice(_BEFORE_HOST) + rng.choice(_HOSTS) + rng.choice(_PATHS)


def _gap(rng: random.Random) -> str:
    if rng.random() < 0.02:
        return rng.choice(_LONG_BLANKS)
    return "".join(rng.choices(_BLANKS, k=rng.choice((1, 1, 1, 2, 3))))


def _markdown(rng: random.Random) -> str:
    address, gap, end = _address(rng), _gap(rng), rng.choice(("", "", ' "t"', " 't'", "\n(t)", _gap(rng)))
    known = address.replace("intent:", "ftp:")  # `<other:...>` may be a tag of XML
    if rng.random() < 0.25:
        address = f"<{address}>"
    return rng.choice(
        (
            f"![a]({gap}{address}{end})",
            f"[a]({gap}{address}{end})",
            f"![a]({gap}<{gap}{address}>{end})",
            f"![a] ({gap}{address}{end})",
            f"![a]{gap}({address})",
            f"[![a]({gap}{address})](/x)",
            f"[[a]]({gap}{address})",
            f"[a]:{gap}{address}{end}\n\n![a]",
            f"![a][b]\n\n[b]:{gap}{address}{end}\n",
            f"[^1]\n\n[^1]:{gap}{address}\n",
            f"<{known}>",
            f"<{gap}{known}>",
            address,
            f"{address} and so on",
            f"a {address})",
            f"| a | b |\n|--|--|\n| ![a]({address}) | {address} |",
            f"[a](/x '{address}') ![b](/y)({gap}{address})",
            f"[a]\\({address}) \\[b]({gap}{address})",
            f"[a]({known}) <{known}>",
        )
    )


def _html(rng: random.Random) -> str:
    tag, name, gap = rng.choice(_TAGS), rng.choice(_ATTRIBUTES), _gap(rng)
    quote = rng.choice(('"', "'", "", '"', "'", "", "&quot;"))
    before = rng.choice(("", "", "", "", "x 1x, ", "a, ", "a ", "//ok.example, ", "https://ok.example\n"))
    value = f"{quote}{gap}{before}{_address(rng)}{rng.choice(('', ' 2x', ' '))}{quote}"
    space = rng.choice((" ", "/", "\n", " alt=x ", ' alt="a"', "\n> ", "\f", "&", " x'"))
    before, end = rng.choice(("", "", _gap(rng))), rng.choice((">", " >", "/>"))
    return f"<{tag}{space}{name}{before}={_gap(rng)}{value}{end}x"


def _refresh(rng: random.Random) -> str:
    time = rng.choice(("0", "5", "0.5", ".", "00000", " 1", "", _gap(rng) + "0"))
    between = rng.choice((";", ",", " ", "; ", " ;\n", ";" + _gap(rng)))
    name = rng.choice(("", "url=", "URL = ", "url='", "uRl\n=\n", "u", "url"))
    content = time + between + name + _address(rng)
    quote = rng.choice(('"', "'"))
    parts = ["http-equiv=refresh", f"content{rng.choice(('', _gap(rng)))}={quote}{content}{quote}"]
    rng.shuffle(parts)
    return f"<meta {' '.join(parts)}>"


def _css(rng: random.Random) -> str:
    address, gap, quote = _address(rng), _gap(rng), rng.choice(('"', "'", "", "&quot;"))
    comment = rng.choice(("", "", "/**/", " /* x */ ", gap))
    function = rng.choice(
        (
            "url",
            "URL",
            "u\\72l",
            "\\75 rl",
            "\\u\\rl",
            "image-set",
            "-webkit-image-set",
            "image",
            "src",
            "\\69mage-set",
        )
    )
    value = f"{function}({rng.choice((gap, comment))}{quote}{gap}{address}{quote}{rng.choice(('', ' 1x'))})"
    if function.endswith("set") and rng.random() < 0.5:
        value = f'{function}("a.png" 1x,{gap}{comment}"{address}" 2x)'
    sheet = rng.choice(
        (
            f"a{{background:{value}}}",
            f'@import{comment}"{address}";',
            f"@import {value};",
            f"@im\\70ort '{address}';",
            f"@font-face{{src:{value}}}",
            f"a{{--x:{value}}}",
        )
    )
    return rng.choice(
        (
            f"<style>{sheet}</style>",
            f"<style>\n{sheet}\n</style>",
            f"<p style='background:{value}'>",
            f'<div\nstyle="background:{value}">',
            f"<svg><rect fill='{value}'></svg>",
        )
    )


def _within(rng: random.Random) -> str:
    """HTML in an attribute of HTML, or in JSON or a program."""
    inner = rng.choice((_html, _css, _refresh, _markdown))(rng)
    quoted = inner.replace("&", "&amp;").replace('"', "&quot;")
    angles = rng.choice(
        (("&lt;", "&gt;"), ("&#60;", "&#62;"), ("&#60", "&#62"), ("<", ">"), ("&LT;", "&GT;"))
    )
    quoted = quoted.replace("<", angles[0]).replace(">", angles[1])
    name = rng.choice(("to", "from", "values"))
    animated = f'<svg><a><animate attributeName=href {name}="{_address(rng)}"/></a></svg>'
    return rng.choice(
        (f'<iframe srcdoc="{quoted}">', f"<!-- {inner} -->", f"<template>{inner}</template>", animated)
    )


SAMPLES = (
    "> ![a](\n> https\\://evil.com/x?d=1)",
    "- ![a](\n  http\\:evil.com/x)",
    "> [a]:\n> //evil.com./x\n\n![a]",
    "![a](\n//évil.com/x)",
    "> ![a](\n> //2130706433/x)",
    "> ![a](\n> //evil\\.com/x)",
    f"![a]({' ' * 600}//evil.com/x)",
    *(f"![a]({blank}//evil.com/x)" for blank in "\u00a0\u2003\u2028\u3000\ufeff"),
    "<img src=/a.png attributionsrc=//evil.com/x>",
    '<style>@import "//evil.com/x";</style>',
    "<p style='background:image-set(\"//evil.com/x\" 1x)'>",
    '<meta http-equiv=refresh content="0;//evil.com/x">',
    "<http:evil.com/x>",
    "![a] (//evil.com/x)",
)


def drawn(rng: random.Random) -> str:
    """A text with one address, seldom two, in some writing, within blocks of Markdown, often mutated."""
    if rng.random() < 0.1:
        return mutated(rng, rng.choice(SAMPLES))
    make = rng.choice((_markdown, _markdown, _markdown, _html, _html, _css, _refresh, _within))
    text = rng.choice(_AROUND) + make(rng) + rng.choice(_AROUND)
    prefix, later = rng.choice(_PREFIXES), rng.choice(_PREFIXES)
    if rng.random() < 0.5:
        later = prefix if prefix.startswith(">") else " " * len(prefix)
    text = prefix + text.replace("\n", "\n" + later)
    return mutated(rng, text) if rng.random() < 0.4 else text


_NASTY = (
    *"\\/:@.?#&;%[]()<>!\"'`= \n\t\r>-*_|~",
    *("//", "](", "]:", "&#", "http:", "url(", "\u00a0", "\ufeff", "\n> "),
)


def mutated(rng: random.Random, text: str) -> str:
    """The text with a few characters more, fewer or moved."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(text) + 1)
        end = place + rng.choice((0, 0, 1, 1, 2))
        text = text[:place] + rng.choice((*_NASTY, "", text[place:end] * 2)) + text[end:]
    return text
