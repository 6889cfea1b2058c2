"""Texts of code, its settings and its manuals, in which `pii` and `secrets` find nothing; and values beside
them, which they find."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.testing import play, stream_of
from hooks.testing.streams import request_for
from tests.hooks.builtin.streams import said

PII, SECRETS = Pii(), Secrets()
NOBODYS = """
    git clone git@github.com:acme/app.git
    Co-Authored-By: Claude <noreply@anthropic.com>
    Co-authored-by: ada <1234+ada@users.noreply.github.com>
    from no-reply@acme.io, Do-Not-Reply@acme.io, no_reply@acme.io
    rsync -a deploy@web1.acme.io:/srv/app/ .
    scp root@web1.acme.io:~/notes.txt . && git remote add b user@code.acme.io:team/app.git
    ssh -p 2222 ec2-user@web1.acme.io
    url = ssh://deploy@code.acme.io/team/app and https://ann:secret@proxy.example.org
    ann@example.com, bob@mail.example.org, c@d.example, e@f.test, g@h.localhost, i@j.invalid
    you@yourdomain.com and compute@app.iam.gserviceaccount.com
    Ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com
    MACs hmac-sha2-256-etm@openssh.com, umac-64-etm@openssh.com
    Keys curve25519-sha256@libssh.org, ssh-ed25519-cert-v01@openssh.com, sntrup761x25519-sha512@openssh.com
    npm install core@7.0.0-beta.two pkg@1.2.3
    listen on 127.0.0.1:8080, bind to 0.0.0.0, host 10.0.0.7, server 192.168.1.1/24, gateway 172.16.0.1
    address 169.254.169.254, proxy 100.64.0.1, netmask 255.255.255.0, peer 224.0.0.251
    host 192.0.2.1, host 198.51.100.7, host 203.0.113.9, host 2001:db8::1, host fe80::1%eth0
    host fd12:3456::1
    host ::1, ping ::1, connect to [::1]:443, host ::ffff:10.0.0.1, host 2000::/3
    route 64.0.0.0/2, host 64:ff9b::a00:1
    resolver to 8.8.8.8 and 1.1.1.1; from 2.1.1.0 to 2.1.1.2
    call(mock, 1000000, 2.0); call: 12.3456789
"""
CODE = """
    private_key: &pyo3::PyAny
    tokens, vec![Token::new(0u32, "a")]
    token = Token.new @scanner.matched2, kind
    password = (1..8).collect { chars }
    Token.String:     'ansibrightblue bg:ansibrightred',
    SIOCGLIFTOKEN                 = -0x3f879678
    dependencies = [("auth", "0006_require_contenttypes_0002")]
    "Output":"    --- PASS: TestAddrStringAllocs/ipv4 (0.00s)"
    Password-protected SECP384R1 private key
    private keys: https://github.com/randombit/botan/tree/4917f26a2b154e841cd27c1bcecdd41d2bdeb6ce
    token: !s.ReadUint24LengthPrefixed(&extra)
    build?token=abc123def456
"""
PERSONS = {
    "ada@lovelace.dev": "EMAIL_ADDRESS",
    "ann@mail.example.co.uk": "EMAIL_ADDRESS",
    "ada@lovelace.dev:hunter22": "EMAIL_ADDRESS",
    "no-ada@acme.io": "EMAIL_ADDRESS",
    "legit@acme.io": "EMAIL_ADDRESS",
    "host 52.95.110.1": "IP_ADDRESS",
    "host 2a00:1450:4001::1": "IP_ADDRESS",
    "host ::ffff:52.95.110.1": "IP_ADDRESS",
}
WHOLE = {
    "EMAIL_ADDRESS": """
        ada.lovelace@gmail.com ada@lovelace.dev:hunter2/x ada@lovelace.dev:5432/prod ada@lovelace.dev:/
        ada@lovelace.dev:~/notes ada@lovelace.dev:acme/app.git ada@lovelace.dev:app.git djm@openssh.com
        ada-lovelace@openssh.com ada@libssh.org ada.lovelace+noreply@gmail.com noreply+ada@lovelace.dev
        no_reply_adalovelace@gmail.com no-reply-ada.lovelace@gmail.com ada@users.noreply.github.com.evil.io
        ada@users.noreply.evil.io ada.lovelace@noreply.gmail.com ada@1.0.de ada@1.1.1.1.de ada@2.0.com
        url://a:adalovelace@gmail.com tel://1:adalovelace@gmail.com ssh://ada.lovelace@lovelace.dev
        https://x:ada.lovelace@gmail.com/ ssh__ada.lovelace@gmail.com ssh__-p__22__ada@lovelace.dev
        ada.jsmith@gmail.com ada@mail.mdavis.org
    """,
    "IP_ADDRESS": """
        83.12.4.91/1 83.12.4.91/8 83.12.4.91/0 http://83.12.4.91/1 GET__83.12.4.91/1 64:ff9b::530c:45b
        2a02:8071:22c4:9d00:e5f1:2b9:7c3:11aa/3 2002:530c:45b::1
    """,
}
"""By kind, texts with a value of which nothing is left. `__`: a blank."""


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("text", lines_of(NOBODYS))
def test_addresses_of_nobody_are_no_finds(text: str) -> None:
    assert said(PII, [text]) == said(PII, list(text)) == text


@pytest.mark.parametrize("text", [text for text in lines_of(NOBODYS) if "@" in text and "pkg@" not in text])
def test_addresses_of_nobody_are_found_if_asked_for(text: str) -> None:
    guard = Pii(reserved="find")
    assert "[EMAIL_ADDRESS]" in said(guard, [text])
    assert said(guard, [text]) == said(guard, list(text))


@pytest.mark.parametrize("text", lines_of(CODE))
def test_code_has_no_secrets(text: str) -> None:
    assert said(SECRETS, [text]) == said(SECRETS, list(text)) == text


@pytest.mark.parametrize(("text", "entity"), PERSONS.items())
def test_values_of_persons_beside_them_are_found(text: str, entity: str) -> None:
    assert f"[{entity}]" in said(PII, [text])
    assert said(PII, [text]) == said(PII, list(text))


@pytest.mark.parametrize(
    ("text", "entity"), [(text.replace("__", " "), kind) for kind in WHOLE for text in WHOLE[kind].split()]
)
def test_nothing_of_a_value_beside_them_is_left(text: str, entity: str) -> None:
    shown = said(PII, [text])
    assert f"[{entity}]" in shown
    assert not re.search("ada|lovelace|djm|83|530c|smith|mdavis", shown)
    assert shown == said(PII, list(text))


@pytest.mark.parametrize(
    "text",
    ["password: Tiger-River-41", "token = q7Rk2mZx9LwT4vBn", "password=abc)9.x$Kq2", "pw: Summer9Rain!"],
)
def test_passwords_beside_them_are_found(text: str) -> None:
    assert "[PASSWORD]" in said(SECRETS, [text])


GUARDS: dict[str, Any] = {"pii": Pii, "secrets": Secrets}
MAIL, KEY = "ada@lovelace.dev", "AKIAQ3EGRZ7PLMW2XK4V"
SOURCES: dict[str, list[dict[str, Any]]] = {
    "user": [{"role": "user", "content": f"mail {MAIL}"}],
    "assistant": [{"role": "assistant", "content": f"{MAIL}."}, {"role": "user", "content": "hi"}],
    "tool": [{"role": "tool", "tool_call_id": "c", "content": f"<{MAIL}>"}],
    "system": [{"role": "system", "content": MAIL}, {"role": "user", "content": "hi"}],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_value_of_the_prompt_passes_if_its_source_is_known(source: str, size: int) -> None:
    text = f"To {MAIL} or bob@lovelace.dev."
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    cases: list[tuple[Any, str]] = [([source], MAIL), (["document"], "[EMAIL_ADDRESS]")]
    for known, shown in cases:
        request = request_for(SOURCES[source])
        assert said(Pii(known=known), pieces, request=request) == f"To {shown} or [EMAIL_ADDRESS]."


@pytest.mark.parametrize(
    ("prompt", "value"),
    [
        (f"x{MAIL}, {MAIL}eloper", MAIL),
        *((f"{before}{MAIL}", MAIL) for before in ("x.", "x-", "x+", "x--", "o'", "x/", "x%", "x_", "é")),
        *((f"{MAIL}{after}", MAIL) for after in (".uk", "-x", "-x.org", "_x", "/x", "@x.org")),
        ("1.83.12.4.91, 183.12.4.91, 83.12.4.91.7, 83.12.4.91-7", "83.12.4.91"),
        ("83.12.4.91", "83.12.4.9"),
        ("x:2a02:8071:22c4::11aa", "2a02:8071:22c4::11aa"),
        ("4219-09-9998, 1-219-09-9998, 219-09-9998-1", "219-09-9998"),
    ],
)
def test_a_part_of_a_longer_value_is_not_known(prompt: str, value: str) -> None:
    asked = [{"role": "user", "content": prompt}]
    guard = Pii(known=["user"])
    assert value not in play(guard, stream_of(f"ip or ssn {value} ok", prompt=asked)).content


@pytest.mark.parametrize("value", [MAIL, "83.12.4.91", "219-09-9998"])
@pytest.mark.parametrize(
    "prompt",
    ["{}", "It is {}.", "({})", "<{}>", "a='{}'", 'A="{}"', "a={}\nb", "a: {},b", "'{}', x", "x:{}", "- {}…"],
)
def test_a_whole_value_is_known(prompt: str, value: str) -> None:
    asked = [{"role": "user", "content": prompt.format(value)}]
    text = f"ip or ssn {value} ok"
    assert play(Pii(known=["user"]), stream_of(text, prompt=asked)).content == text


def test_a_machine_of_a_url_is_known() -> None:
    text = "see http://83.12.4.91/index now"
    asked = [{"role": "user", "content": text}]
    assert play(Pii(known=["user"]), stream_of(text, prompt=asked)).content == text


@pytest.mark.parametrize(
    "prompt",
    ["password=Tiger-River-41x", "password=x/Tiger-River-41", "pw a-Tiger-River-41", "Tiger-River-41/x"],
)
def test_a_part_of_a_longer_password_is_not_known(prompt: str) -> None:
    guard, text = Secrets(known=["user"]), "password=Tiger-River-41 ok"
    for asked, is_known in ((prompt, False), ("password=Tiger-River-41", True)):
        released = play(guard, stream_of(text, prompt=[{"role": "user", "content": asked}]))
        assert (released.content == text) is is_known


def test_known_values_are_for_guards_that_do_not_restore() -> None:
    with pytest.raises(ValueError, match="known"):
        Pii(known=["user"], restore=True, prompt="redact")


def preset() -> list[Any]:
    config = yaml.safe_load(Path("examples/agent.yaml").read_text(encoding="utf-8"))
    return [GUARDS[one["path"]](**one["args"]) for one in config["hooks"]]


@pytest.mark.parametrize(("value", "why"), [(MAIL, "personal data"), (KEY, "a key or a password")])
def test_the_guards_of_agents_withhold_a_call_and_say_so(value: str, why: str) -> None:  # contract 2.14, 3.20
    call = stream_of(f'{{"content": "{value}"}}', channel="tool_call", tool_name="write")
    released = play(preset(), call)
    assert released.tool_calls == []
    assert released.content.startswith("[A tool call was withheld")
    assert why in released.content
    assert play(preset(), f"It is {value}.").content in ("It is [EMAIL_ADDRESS].", "It is [AWS_ACCESS_KEY].")


def test_the_guards_of_agents_let_a_file_be_written_that_was_read(restore_key: None) -> None:
    prompt = [{"role": "tool", "tool_call_id": "c", "content": f"author {MAIL}"}]
    written = f'{{"content": "author {MAIL}"}}'
    released = play(preset(), stream_of(written, channel="tool_call", tool_name="write", prompt=prompt))
    assert released.tool_calls == [("write", written)]
    assert released.content == ""
