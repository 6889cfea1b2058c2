"""Secrets: what each issuer's keys look like, passwords by what stands before them, the same at every cut."""

import json
import random
import re
import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.detection import cut_by
from hooks import Chunk, Verdict
from hooks.builtin.secret_rules.randomness import looks_random
from hooks.builtin.secrets import Secrets
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from hooks.testing import assert_chunk_invariant, stream_of
from tests.helpers import finish_of, slow, text_of
from tests.hooks.builtin.streams import PLACES, SELDOM_IN_A_WORKER, Watch, cut, run, said, ways_to_cut

ALL = Secrets()
KEY = "sk-EXAMPLE7f3K9mQ2xT8vB4nL6pR1"
TEXT = f"Set password=Xk9#mP2$vLq7 and {KEY}, ok."


@pytest.mark.parametrize("cuts", [[], [4, 13, 20, 30, 33, 40], range(90)])
def test_each_action_is_the_same_wherever_the_stream_is_cut(cuts: Any) -> None:
    pieces = cut(TEXT, cuts)
    assert said(ALL, pieces) == "Set password=[PASSWORD] and [OPENAI_KEY], ok."
    assert said(Secrets(action="suppress"), pieces) == "Set password= and , ok."
    out = run(Secrets(action="terminate", text="(secret)"), pieces)
    assert (text_of(out), finish_of(out)) == ("Set password=(secret)", ("content_filter", "PASSWORD"))
    assert said(Secrets(channels=["content"]), pieces, "reasoning") == TEXT
    assert said(ALL, pieces, "reasoning") == said(ALL, pieces, "tool_call") == said(ALL, pieces)


def test_entities_can_be_chosen() -> None:
    assert said(Secrets(entities=["OPENAI_KEY"]), [TEXT]) == TEXT.replace(KEY, "[OPENAI_KEY]")
    with pytest.raises(HookLoadError, match=re.escape("entities are some of ADOBE_SECRET, AGE_KEY")):
        load_hook(HookSpec("secrets", {"entities": ["SKELETON_KEY"]}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AKIAJ7QRSTUVWX234567", "[AWS_ACCESS_KEY]"),
        ("aws_secret_key = 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", "aws_secret_key = [AWS_SECRET_KEY]"),
        ("postgres://bob:s3cr3t@db.initech.com:5432/x", "postgres://bob:[CONNECTION_STRING]@db.initech.com:5432/x"),
        ("https://:p%40ss@host/", "https://:[CONNECTION_STRING]@host/"),
        ("Server=a;User Id=sa;Password=hunter2;x=y", "Server=a;User Id=sa;Password=[CONNECTION_STRING];x=y"),
        ("AccountName=a;AccountKey=" + "Ab1/" * 21 + "Ab==;", "AccountName=a;AccountKey=[AZURE_KEY];"),
        ("DB_PASSWORD: 'tR5!kq-92Lz(x'", "DB_PASSWORD: '[PASSWORD]'"),
        ('{"apiKey": "5f4dcc3b5aa765d61d8327deb882cf99"}', '{"apiKey": "[PASSWORD]"}'),
        ("Authorization: Bearer 9dK2nL5pQ8xW3vZ7", "Authorization: Bearer [PASSWORD]"),
        ("The API key is 9dK2nL5pQ8xW3vZ7.", "The API key is [PASSWORD]."),
        ("AWS_SECRET=kP3vXw9TqZ/Lm2RbYc7Hd5Jf0GsNaQe8UiOo4+Kx", "AWS_SECRET=[AWS_SECRET_KEY]"),
        ("The key is:\n\n```\n" + KEY + "\n```", "The key is:\n\n```\n[OPENAI_KEY]\n```"),
        ("Your API key:\n\n```\n9dK2nL5pQ8xW3vZ7\n```", "Your API key:\n\n```\n[PASSWORD]\n```"),
        ("The password for the Wi-Fi is Xk9#mP2$vLq7.", "The password for the Wi-Fi is [PASSWORD]."),
        ('{\\"password\\": \\"Xk9#mP2$vLq7\\"}', '{\\"password\\": \\"[PASSWORD]\\"}'),
        ("密码是Xk9#mP2$vLq7，别说", "密码是[PASSWORD]，别说"),
        (f"密钥{KEY}是我的", "密钥[OPENAI_KEY]是我的"),
        ("token=" + random.Random(1).randbytes(400).hex(), "token=[PASSWORD]"),
        ("token=" + random.Random(1).randbytes(4000).hex() + ", and", "token=[PASSWORD], and"),
        ("password" + " " * 20 + "= kJ8s9dF2mQ1zX7", "password" + " " * 20 + "= [PASSWORD]"),
        ("password:" + " " * 20 + "kJ8s9dF2mQ1zX7", "password:" + " " * 20 + "[PASSWORD]"),
        ("password = $kJ8s9dF2mQ1zX7", "password = [PASSWORD]"),
        ("password: $Summer2024", "password: [PASSWORD]"),
        ("password: $kJxWqZvLmTzR", "password: [PASSWORD]"),
        ("mysql://bob:%40dm1n!@db/x", "mysql://bob:[CONNECTION_STRING]@db/x"),
        ("okta: 002xYFz9JHF9b5F4yQJN6Y1Vv=xhA1kaMxoqSKslQa", "okta: [ISSUER_KEY]"),
        ("glptt-" + "0a1b2c3d" * 5, "[GITLAB_TOKEN]"),
        ("hvs.6j4cuewowBGit65rheNoceI7", "[VAULT_TOKEN]"),
        ("ghs_123456_eyJhbGciOiJSUzI1NiJ9." + "aB3d" * 20 + "." + "x-Y_z" * 9 + ".", "[GITHUB_TOKEN]."),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.SflKxwRJSMeKKF2QT4fwp是我的é", "[JWT]是我的é"),
        ("_AKIAQ3ZL7PXW2MTVK5RD_ __AKIAQ3ZL7PXW2MTVK5RD__", "_[AWS_ACCESS_KEY]_ __[AWS_ACCESS_KEY]__"),
        ("eyJhbGciOiJkaXIifQ..aB3dEf5hIj7l." + "aB3d" * 20 + ".Qw3rTy6uIoP9aSdF", "[JWT]"),
    ],
)  # fmt: skip
def test_what_is_secret_is_taken_out_and_what_stands_around_it_left(text: str, expected: str) -> None:
    for pieces in ([text], list(text)):
        assert said(ALL, pieces) == expected


PASSWORDS = {
    # Texts with a password that a person made up, and the password.
    "password: hunter22!": "hunter22!",
    "password = 'Tiger-River-41'": "Tiger-River-41",
    "Your new password is SunnyDay2031, please change it": "SunnyDay2031",
    "DB_PASSWORD=blue-kettle-4471": "blue-kettle-4471",
    '{"user": "eva", "password": "K!tchen77"}': "K!tchen77",
    "https://shop.example.com/login?password=winter77roof&user=eva": "winter77roof",
    "- name: DB_PASSWORD\n  value: r0ses&thorns9": "r0ses&thorns9",
    "Das Passwort lautet Birnbaum-1987": "Birnbaum-1987",
    "la contraseña es Naranja_2209": "Naranja_2209",
    "le mot de passe est Cerise!1404": "Cerise!1404",
    "пароль: zima2044!": "zima2044!",
    "密码：xiangjiao88!": "xiangjiao88!",
    "CREATE USER eva IDENTIFIED BY 'Lantern!552'": "Lantern!552",
    "curl -u eva:Lantern!552 https://api.example.com": "Lantern!552",
    'curl -u "q7LkV48zXx!t:" https://api.example.com': "q7LkV48zXx!t",
    'password = "a{b]c}(d$e#f!g"': "a{b]c}(d$e#f!g",
}


@pytest.mark.parametrize(("text", "password"), PASSWORDS.items())
def test_a_password_that_a_person_made_up_is_taken_out_alone(text: str, password: str) -> None:
    expected = text.replace(password, "[PASSWORD]")
    for pieces in ([text], list(text)):
        assert said(ALL, pieces) == expected


def test_texts_and_patterns_can_be_allowed() -> None:
    guard = Secrets(allow=["hunter22!", "/^sk-EXAMPLE/"])
    text = f"password: hunter22! or {KEY}, password: hunter33!"
    assert said(guard, list(text)) == text.replace("hunter33!", "[PASSWORD]")
    with pytest.raises(HookLoadError, match="allow: "):
        load_hook(HookSpec("secrets", {"allow": ["/(/"]}))


LOOKS = """
    password: changeme;token = get_access_token_v2();secret=os.environ['DB_SECRET'];api_key=${API_KEY};
    password is required;The password is incorrect.;max_tokens: 4096;token: your-token-here;passwd = None
    sk-learn;sk-estimator-html-repr-fitted;hf_hub_download;ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx;glpat-...
    da39a3ee5e6b4b0d3255bfef95601890afd80709;sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    https://host:8080/a@b;git@github.com:a/b.git;postgres://bob:****@host/x;http://bob@host;connect(password=pw)
    550e8400-e29b-41d4-a716-446655440000;-----BEGIN PUBLIC KEY-----;-----BEGIN PRIVATE KEY----- opens one
    http://localhost:8080?to=a@b.example;postgres://user:password@localhost/db;//u:$PASSWORD@h;//u:%PASSWORD%@h
    -----BEGIN PRIVATE KEY----- characteristically begins one;eyJé世界世界世界世界.abcd;eyJé世界abcdefgh.abcd
    glpat-my-gitlab-token-goes-here;token: ${{ secrets.GITHUB_TOKEN }};hvs.the-token-of-your-vault-server
    The token expires in 2024-05-01T12:00:00Z;The token is <|im_start|>, pad_token_id=151643;pwd=/home/me/v2
    AKIAIOSFODNN7EXAMPLE;secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY
    sk-your-api-key-here-please-now
    ghp_1234567890abcdefghijklmnopqrstuvwxyz12;AKIAXXXXXXXXXXXXXXXX;s3://access_key_id:secret_access_key@bucket
    postgres://bob:${PASSWORD}@db/x;host=db;password=parts['password'];password: process.env.DB_PASSWORD
    password: str;password: String!;api_key = os.environ["API_KEY"];passwd: bool = False;password=<token>
    password: aes256
    password: 30days;password = sha256;private_key: Ed25519PrivateKey;token_type=bearer;passwords: 2024-05-01
    "password", "scram-sha-256";password = getpass.getpass()
    credentialsId: 'ff083f76-7804-4ef1-80e4-fe975bb9141b'
    public_key = "9Dmzk4p4WGeLKs1Pu8QvKUpRLgFLfRYD9AJKjbKTXit";csrf_token = "9Dmzk4p4WGeLKs1Pu8QvKUpRLgFLfRY"
    $token = $parser->get_token;$token = $P4ssw0rd->get;$token = $Config::Data9X
    fake_token = "wqzsxa1ybziok2lq";nonMatchingToken := "wqzsxa1ybziok2lq"
    AIzaSyAO_FJ2SlqU8Q4STEHLGCilw_Y9_11qcW8
    name="authenticity_token" value="7SWa-Fo1_hsC6oovfBsJFL"
    "token3": "xoxp-1234-1234-1234-4ddbc191d40ee098cbaae6f3"
    token = "xoxp-572370529330-573807301142-572331691188-####################";token = "app12345:UserNameCode"
    pass => $password,;$token = $request->input('token')
    token = cls(**dct);password: @password;set PASSWORD=%DB_PASSWORD%;password: !secret db_pass1
    //u:<password>@proxy-host;make_token: #include;AKIAJ2S7ERKQ4PLMZ5AB_NAME;AKIAJ2S7ERKQ4PLMZ5AB___
    pk_live_51H8abcdefghijklmnopqrstuvwx;compass: N45.1234567W;keyboard = qwertz-de-2x;passage: 1Cor13:4-7abcd
"""


@pytest.mark.parametrize(
    "text", [text for line in LOOKS.split("\n") for text in line.strip().split(";") if text]
)
def test_what_only_looks_like_it_passes(text: str) -> None:
    assert cut_by(ALL.detector, text) == []


@SELDOM_IN_A_WORKER
def test_a_private_key_is_one_even_if_it_breaks_off() -> None:
    lines = ["-----BEGIN RSA PRIVATE KEY-----", *["MIIEpAIBAAKCAQEAx7" + "Ab1/" * 11 + "Zz"] * 30, "AbCd12=="]
    whole = "\n".join([*lines, "-----END RSA PRIVATE KEY-----"])
    ways = (
        "\r\n",
        "\\n",
        "\n            ",
        "\n> ",
        '\\n" +\n    "',
        "\n# ",
        "\n// ",
        "</p>\n<p>",
        "`n",
        '\n" . "',
        "\n% ",
        "\n" + " " * 60,
        "\n;; ",
        "<br>\n",
        "`\n`",
        "`n",
    )
    numbered = "\n".join(f"{i:6}\t{line}" for i, line in enumerate(lines, start=1)).lstrip(" 1\t")
    for text in (whole, "\n".join(lines[:20]), numbered, *(whole.replace("\n", between) for between in ways)):
        for pieces in ([f"Here: {text}"], cut(f"Here: {text}", range(0, 3000, 7))):
            assert said(ALL, pieces) == "Here: [PRIVATE_KEY]"
    assert said(ALL, [f"{whole}\nthat is all"]) == "[PRIVATE_KEY]\nthat is all"


BEGIN, END = "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----"


def key_lines(count: int) -> str:
    rng = random.Random(count)
    alphabet = string.ascii_letters + string.digits + "+/"
    return "".join("".join(rng.choices(alphabet, k=64)) + "\n" for _ in range(count))


@SELDOM_IN_A_WORKER
@pytest.mark.parametrize("channel", ["content", "tool_call"])
def test_a_private_key_of_any_length_is_withheld_up_to_its_end_line(channel: str) -> None:
    text = f"Here: {BEGIN}{key_lines(2000)}{END}\nThat is all."
    watch = Watch(ALL)
    assert said(watch, cut(text, range(0, len(text), 50)), channel) == "Here: [PRIVATE_KEY]\nThat is all."
    assert watch.most_held < 2000
    assert said(Secrets(action="suppress"), cut(text, range(0, len(text), 999))) == "Here: \nThat is all."


@SELDOM_IN_A_WORKER
def test_of_a_private_key_nothing_is_kept() -> None:
    kept: list[int] = []

    def guard(chunk: Chunk) -> Verdict:
        verdict = ALL(chunk)
        kept.append(len(chunk.state["excerpt"].text) + len(chunk.state["excerpt"].taken))
        return verdict

    text = f"{BEGIN}{key_lines(2000)}"
    assert said(guard, cut(text, range(0, len(text), 16))) == "[PRIVATE_KEY]"
    assert max(kept) < ALL.detector.reach + 100 < len(text) / 5


PRIVATE_KEYS = {
    f"{BEGIN}{key_lines(9)}(and so on)\n{key_lines(1)}": "[PRIVATE_KEY]",
    f"{BEGIN}{key_lines(2)}...\n{key_lines(1)}{END} {END}": f"[PRIVATE_KEY] {END}",
    f"{BEGIN}{key_lines(1)}{END}{BEGIN}{key_lines(3)}{END}{BEGIN}": "[PRIVATE_KEY]" * 2 + BEGIN,
    f"{BEGIN}{key_lines(1)}-----END PRIVATE KEYS-----.{END}.": "[PRIVATE_KEY].",
    f"{BEGIN}Comment: {END}\n{key_lines(1)}{END}.": f"[PRIVATE_KEY]\n{key_lines(1)}{END}.",
    f"Public-Lines: 2\n{key_lines(2)}Private-Lines: 14\n{key_lines(9)}Private-MAC: 9dde": (
        f"Public-Lines: 2\n{key_lines(2)}[PRIVATE_KEY]: 9dde"
    ),
    f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: a\n{key_lines(1)}": "[PRIVATE_KEY]",
    f"{BEGIN}{key_lines(1)}{END}.".replace("PRIVATE KEY", "OpenVPN Static key V1"): "[PRIVATE_KEY].",
}  # fmt: skip
"""And what is released of them."""


@SELDOM_IN_A_WORKER
@pytest.mark.parametrize(("text", "expected"), PRIVATE_KEYS.items())
def test_a_private_key_ends_where_its_end_line_does(text: str, expected: str) -> None:
    for pieces in ([text], list(text), *ways_to_cut(text, random.Random(5), 5)):
        assert said(ALL, pieces) == expected


@pytest.mark.parametrize("mode", ["the kit's own"], indirect=True)
@pytest.mark.parametrize("text", [text if i == 1 else slow(text) for i, text in enumerate(PRIVATE_KEYS)])
def test_where_text_with_private_keys_is_cut_changes_nothing(text: str) -> None:
    assert_chunk_invariant(ALL, stream_of(text[-150:] + text), num_random=10)


def test_a_private_key_in_arguments_leaves_them_json() -> None:
    value = {"a": f"x{BEGIN}{key_lines(3)}", "b": [1, True, "c"]}
    for pieces in ways_to_cut(json.dumps(value), random.Random(6), 10):
        released = json.loads(said(ALL, pieces, "tool_call"))
        assert released == {"a": "x[PRIVATE_KEY]", "": ["", "", ""]}


def test_of_a_private_key_in_arguments_no_more_is_held_than_a_number() -> None:
    watch = Watch(ALL)
    released = said(watch, [f"[{BEGIN}{key_lines(2)}", *[",12"] * 500], "tool_call")
    assert released == "[[PRIVATE_KEY]" + ',""' * 500
    assert watch.most_held == 2


REST = st.lists(
    st.sampled_from([" ", "  ", "x", "12", "true", ",", '"', "[", "\n", "tr", "\\", " " * 70, END, "9" * 70]),
    max_size=12,
)


@given(st.sampled_from(['["', "", "[", '{"a":']), st.sampled_from(["", ", ", "12, ", "1: "]), REST, PLACES)
@example('["', "", ["x", " ", "12", " ", "x"], [*range(200)])
@example("", ", ", [], [*range(200)])
@example("[", "", [",", " " * 70, "12", " ", "x"], [168])
@example("", "", [",", "9" * 70, "x"], [159])
def test_where_arguments_with_a_private_key_are_cut_changes_nothing(
    before: str, number: str, rest: list[str], places: list[int]
) -> None:
    text = f"{before}{BEGIN}{number}{key_lines(1)}{''.join(rest)}"
    assert said(ALL, cut(text, places), "tool_call") == said(ALL, [text], "tool_call")


def test_a_word_between_a_keys_digits_makes_it_no_example() -> None:
    for key in ("ghp_LqiNxigpyjrPL78" + "YOU3xDq2HW2cjO70voBuZ", "AKIAXQVPKF2" + "THE6HTGTH"):
        assert key not in said(Secrets(), [f"The key is {key}."])


def test_what_is_drawn_at_random_differs_from_words() -> None:
    words = (
        "get_access_token settings.DB_PASSWORD_1 correct-horse-battery-staple Summer2024! x86_64-linux-gnu"
    )
    assert not any(map(looks_random, words.split()))
    drawn = "q8W3e-r7T2y_6U1i 5f4dcc3b5aa765d61d8327deb882cf99 k3v9x2m7q1z8 i6^-!JU-Y_M7mH Tr0ub4dor&3"
    assert all(map(looks_random, drawn.split()))


def test_a_path_of_words_is_no_key_of_aws() -> None:
    text = "https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task_execution_IAM_role.html"
    assert said(Secrets(), [text]) == text
