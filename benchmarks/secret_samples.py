"""Keys that open nothing: in the form that their issuer publishes, and drawn at random."""

import base64
import json
import random
from typing import Any

from benchmarks.pii_samples import WORDS
from benchmarks.samples import ALNUM, DIGITS, HEX, LOWER, UPPER, Kind, Make, chars, fill

URL_SAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
SYMBOLS = ALNUM + "!@#%^&*_-+"


def some(rng: random.Random, *makers: Make) -> str:
    return rng.choice(makers)(rng)


def of(prefix: str, alphabet: str, count: int, most: int = 0, suffix: str = "") -> Make:
    """`prefix` and from `count` up to `most` characters of `alphabet`."""
    return lambda rng: prefix + chars(rng, alphabet, rng.randint(count, most or count)) + suffix


def word(rng: random.Random) -> str:
    parts = (
        "get",
        "user",
        "access",
        "token",
        "default",
        "secret",
        "value",
        "config",
        "session",
        "name",
        "from",
        "env",
    )
    made = rng.sample(parts, rng.randint(2, 4))
    camel = made[0] + "".join(part.title() for part in made[1:])
    return rng.choice(("_".join(made), camel, "-".join(made), "_".join(made).upper(), ".".join(made)))


def near(*forms: Make) -> Make:
    """What is not quite in one of the forms: too short, with a wrong character, or in words."""

    def spoil(rng: random.Random) -> str:
        value = some(rng, *forms)
        head, place = value[: rng.randint(2, 8)], rng.randint(8, 14)
        return rng.choice(
            (
                value[:place],
                value.swapcase()[:place],
                f"{head}{word(rng)}",
                f"{head}...{value[-4:]}",
                head + "x" * rng.randint(8, 40),
                head + "*" * 12,
                word(rng),
            )
        )

    return spoil


def kind(entity: str, labels: tuple[str, ...], *forms: Make, **more: Any) -> Kind:
    return Kind(entity, lambda rng: some(rng, *forms), near(*forms), labels, **more)


def github(rng: random.Random) -> str:
    return rng.choice(
        (
            f"gh{rng.choice('pousr')}_{chars(rng, ALNUM, 36)}",
            f"gh{rng.choice('po')}_{chars(rng, ALNUM, rng.randint(40, 251))}",
            f"ghs_{fill(rng, '%#####')}_{jwt(rng)}",
            f"github_pat_{chars(rng, ALNUM, 22)}_{chars(rng, ALNUM, 59)}",
        )
    )


def gitlab(rng: random.Random) -> str:
    return rng.choice(
        (
            f"gl{rng.choice(('pat', 'dt', 'rt', 'ft', 'soat', 'ffct'))}-{chars(rng, URL_SAFE, 20)}",
            f"glptt-{chars(rng, HEX, 40)}",
            f"gloas-{chars(rng, URL_SAFE, 64)}",
            f"glagent-{chars(rng, URL_SAFE, 50)}",
            f"glcbt-{chars(rng, HEX, 2)}_{chars(rng, URL_SAFE, 20)}",
            f"glpat-{chars(rng, URL_SAFE, 27)}.{fill(rng, '0#')}.{chars(rng, LOWER + DIGITS, 9)}",
            f"glrt-t1_{chars(rng, URL_SAFE, 27)}.{chars(rng, LOWER + DIGITS, 9)}",
            f"GR1348941{chars(rng, URL_SAFE, 20)}",
        )
    )


def slack(rng: random.Random) -> str:
    team, bot = fill(rng, "############"), fill(rng, "#############")
    hook = f"T{chars(rng, UPPER + DIGITS, 10)}/B{chars(rng, UPPER + DIGITS, 10)}/{chars(rng, ALNUM, 24)}"
    return rng.choice(
        (
            f"xoxb-{team}-{bot}-{chars(rng, ALNUM, 24)}",
            f"xoxp-{team}-{bot}-{bot}-{chars(rng, HEX, 32)}",
            f"xapp-1-A{chars(rng, UPPER + DIGITS, 10)}-{bot}-{chars(rng, HEX, 64)}",
            f"hooks.slack.com/services/{hook}",
        )
    )


def openai(rng: random.Random) -> str:
    return rng.choice(
        (
            f"sk-{chars(rng, ALNUM, 20)}T3BlbkFJ{chars(rng, ALNUM, 20)}",
            f"sk-proj-{chars(rng, URL_SAFE, 74)}T3BlbkFJ{chars(rng, URL_SAFE, 74)}",
            f"sk-svcacct-{chars(rng, URL_SAFE, 74)}T3BlbkFJ{chars(rng, URL_SAFE, 74)}",
            f"sk-{chars(rng, ALNUM, 48)}",
        )
    )


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def jwt(rng: random.Random) -> str:
    header = {"alg": rng.choice(("HS256", "RS256", "none")), "typ": "JWT"}
    if rng.random() < 0.4:
        header["kid"] = fill(rng, "~~~~")
    claims = {"sub": fill(rng, "##########"), "name": rng.choice(WORDS), "iat": rng.randint(10**9, 2 * 10**9)}
    return f"{encoded(header)}.{encoded(claims)}.{chars(rng, URL_SAFE, rng.choice((43, 86, 342)))}"


def no_jwt(rng: random.Random) -> str:
    parts = jwt(rng).split(".")
    return rng.choice(
        (
            parts[0],
            parts[2],
            encoded({"page": 2, "cursor": fill(rng, "##########")}),
            ".".join(encoded({"page": n}) for n in range(3)),
            f"{parts[0]}.{word(rng).split('.')[0]}"[:30],
            "eyJ.eyJ.abc",
            "..".join(parts),
        )
    )


def private_key(rng: random.Random) -> str:
    name = rng.choice(("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA "))
    body = chars(rng, BASE64, rng.choice((150, 220, 1200, 1620, 2350)))
    width = rng.choice((64, 64, 70))
    lines = [body[i : i + width] for i in range(0, len(body), width)]
    headers = ["Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-128-CBC,{fill(rng, '~' * 32).upper()}", ""]
    if name != "RSA " or rng.random() > 0.3:
        headers = []
    block = [f"-----BEGIN {name}PRIVATE KEY-----", *headers, *lines, f"-----END {name}PRIVATE KEY-----"]
    return rng.choice(("\n", "\n", "\r\n", "\\n")).join(block)


def no_private_key(rng: random.Random) -> str:
    body = "\n".join(chars(rng, BASE64, 64) for _ in range(5))
    return rng.choice(
        (
            f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----",
            f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----",
            f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{chars(rng, BASE64, 43)}",
            "-----BEGIN PRIVATE KEY-----",
            "BEGIN RSA PRIVATE KEY",
            f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{body}\n-----END PGP PUBLIC KEY BLOCK-----",
            "----- PRIVATE KEY -----",
            "-----BEGIN RSA PRIVATE KEY----- is how it begins",
            "grep 'BEGIN PRIVATE KEY' *.pem",
        )
    )


def drawn(rng: random.Random) -> str:
    """A password or a key as tools make them."""
    return some(
        rng,
        of("", ALNUM, 12, 40),
        of("", SYMBOLS, 12, 24),
        of("", HEX, 32),
        of("", HEX, 40),
        of("", HEX, 64),
        of("", LOWER + DIGITS, 16, 32),
        of("", BASE64, 32, 44),
        of("", URL_SAFE, 32, 43),
    )


def no_password(rng: random.Random) -> str:
    return rng.choice(
        (
            word(rng),
            word(rng),
            word(rng) + "()",
            f"os.environ['{word(rng).upper()}']",
            f"${{{word(rng).upper()}}}",
            f"<{word(rng)}>",
            "*" * rng.randint(6, 16),
            "changeme",
            "x" * rng.randint(6, 20),
            "None",
            "null",
            "true",
            "incorrect",
            "required",
            fill(rng, "####"),
            fill(rng, "########"),
            "your-api-key-here",
            "at least 8 characters",
            f"config.{word(rng)}",
            f"{word(rng)}_1",
            f"/etc/{word(rng)}/key.pem",
            "not set",
            "expired yesterday",
            fill(rng, "20##-1#-0%"),
        )
    )


def human(rng: random.Random) -> str:
    """A password that somebody thought of, or one that a tool made."""
    made = drawn(rng).replace("/", "_").replace("@", "!").replace("#", "-")
    return rng.choice((made, f"{rng.choice(WORDS)}{fill(rng, '####')}!", fill(rng, "______##")))


SCHEMES = ("postgres", "postgresql", "mysql", "mongodb+srv", "redis", "amqps", "https", "ftp", "mssql+pyodbc")
AROUND = ("{label}: %s", "{label}=%s", 'url = "%s"', "Connect to %s, then retry.", "`%s`", "%s")
DSNS = (
    "Server=%s;Database=shop;User Id=%s;Password={value};",
    "host=%s port=5432 dbname=shop user=%s password={value}",
    "Data Source=%s;Initial Catalog=shop;UID=%s;PWD={value}",
)


def host(rng: random.Random) -> str:
    name = rng.choice(WORDS)
    return rng.choice(
        (f"{name}.example.com", "localhost", f"10.0.{rng.randint(0, 9)}.{rng.randint(1, 254)}", name)
    )


def connection(rng: random.Random) -> str:
    user = rng.choice(("bob", "app_user", "root", "", "svc-1"))
    if rng.random() < 0.3:
        return rng.choice(AROUND[:3]) % (rng.choice(DSNS) % (host(rng), user or "sa"))
    port = rng.choice(("", ":5432", ":27017"))
    return rng.choice(AROUND) % f"{rng.choice(SCHEMES)}://{user}:{{value}}@{host(rng)}{port}/shop?x=1"


def no_connection(rng: random.Random) -> str:
    scheme, at = rng.choice(SCHEMES), host(rng)
    return rng.choice(
        (
            f"{scheme}://{at}:5432/shop",
            f"{scheme}://bob@{at}/shop",
            f"git@{at}:shop/web.git",
            f"{scheme}://{at}/a:b@c",
            f"{scheme}://bob:****@{at}/shop",
            f"{scheme}://bob:${{PASSWORD}}@{at}/shop",
            f"{scheme}://bob:<password>@{at}",
            f"{scheme}://bob:%s@{at}/shop",
            f"Server={at};Database=shop;Integrated Security=true;",
            f"connect(host={at}, user=bob, password=password)",
            f"http://{at}:8080/?to=a@b.example",
            f"mailto:a@{at}",
        )
    )


PASSWORD_FORMS = (
    "{label}={value}",
    "export {label}={value}\n",
    '{label} = "{value}"',
    "{label}: {value}",
    '{{"{label}": "{value}", "user": "anna"}}',
    "The {label} is {value}",
    "My {label} is {value}.",
    "--{label} {value} --verbose",
    "**{label}:** {value}\n\nKeep it safe.",
    "| {label} | {value} |",
    "{label} => '{value}',",
)
PASSWORD_LABELS = (
    *(
        "password",
        "DB_PASSWORD",
        "secret",
        "api_key",
        "API key",
        "token",
        "access_token",
        "client_secret",
        "passwd",
    ),
    *("apiKey", "auth-token", "passphrase", "SECRET_KEY", "Passwort"),
)
KEY = ("key", "API key", "token", "TOKEN", "secret")

KINDS = (
    kind(
        "AWS_ACCESS_KEY",
        ("AWS key", "aws_access_key_id"),
        of("AKIA", UPPER + "234567", 16),
        of("ASIA", UPPER + "234567", 16),
    ),
    kind("AWS_BEDROCK_KEY", KEY, of("ABSK", BASE64, 128), of("ABSK", BASE64, 127, suffix="=")),
    kind(
        "AWS_SECRET_KEY",
        ("aws_secret_access_key", "AWS secret", "secretAccessKey"),
        of("", BASE64, 40),
        needs_label=bool,
    ),
    kind(
        "GCP_KEY", KEY, of("AIza", URL_SAFE, 35), of("GOCSPX-", URL_SAFE, 28), of("ya29.", URL_SAFE, 100, 200)
    ),
    kind(
        "AZURE_KEY",
        ("Azure storage key", "AccountKey", "azure_primary_key"),
        of("", BASE64, 86, suffix="=="),
        needs_label=bool,
    ),
    kind("GITHUB_TOKEN", KEY, github),
    kind("GITLAB_TOKEN", KEY, gitlab),
    kind(
        "ATLASSIAN_TOKEN",
        KEY,
        lambda rng: f"ATATT3xFfGF0{chars(rng, URL_SAFE, 171)}={fill(rng, '~~~~~~~~').upper()}",
        of("ATBB", ALNUM, 32),
    ),
    kind(
        "STRIPE_KEY",
        KEY,
        of("sk_live_", ALNUM, 24),
        of("sk_test_", ALNUM, 99),
        of("rk_live_", ALNUM, 99),
        of("whsec_", ALNUM, 32),
    ),
    kind(
        "SQUARE_TOKEN",
        KEY,
        of("EAAA", URL_SAFE, 60),
        of("sq0atp-", URL_SAFE, 22),
        of("sq0csp-", URL_SAFE, 43),
    ),
    kind(
        "BRAINTREE_TOKEN",
        KEY,
        lambda rng: f"access_token$production${chars(rng, LOWER + DIGITS, 16)}${chars(rng, HEX, 32)}",
    ),
    kind("SHOPIFY_TOKEN", KEY, of("shpat_", HEX, 32), of("shpss_", HEX, 32)),
    kind("OPENAI_KEY", KEY, openai),
    kind(
        "ANTHROPIC_KEY",
        KEY,
        of("sk-ant-api03-", URL_SAFE, 93, suffix="AA"),
        of("sk-ant-admin01-", URL_SAFE, 93, suffix="AA"),
    ),
    kind("OPENROUTER_KEY", KEY, of("sk-or-v1-", HEX, 64)),
    kind("HUGGINGFACE_TOKEN", KEY, of("hf_", ALNUM[:52], 34)),
    kind("NVIDIA_KEY", KEY, of("nvapi-", URL_SAFE, 64)),
    kind("CEREBRAS_KEY", KEY, of("csk-", LOWER + DIGITS, 48)),
    kind("TOGETHER_KEY", KEY, of("tgp_v1_", URL_SAFE, 43)),
    kind("GROQ_KEY", KEY, of("gsk_", ALNUM, 52)),
    kind("REPLICATE_TOKEN", KEY, of("r8_", ALNUM, 37)),
    kind("XAI_KEY", KEY, of("xai-", ALNUM, 80)),
    kind("PERPLEXITY_KEY", KEY, of("pplx-", ALNUM, 48)),
    kind("SLACK_TOKEN", KEY, slack),
    kind(
        "DISCORD_TOKEN",
        KEY,
        lambda rng: (
            f"{rng.choice('MNO')}{chars(rng, ALNUM, 23)}.{chars(rng, URL_SAFE, 6)}.{chars(rng, URL_SAFE, 38)}"
        ),
    ),
    kind("TELEGRAM_TOKEN", KEY, lambda rng: f"{fill(rng, '%#########')}:AA{chars(rng, URL_SAFE, 33)}"),
    kind("TWILIO_KEY", KEY, of("SK", HEX, 32), of("SK", HEX.upper(), 32)),
    kind("SENDGRID_KEY", KEY, lambda rng: f"SG.{chars(rng, URL_SAFE, 22)}.{chars(rng, URL_SAFE, 43)}"),
    kind("MAILGUN_KEY", KEY, of("key-", HEX, 32)),
    kind("NPM_TOKEN", KEY, of("npm_", ALNUM, 36)),
    kind("PYPI_TOKEN", KEY, of("pypi-AgEIcHlwaS5vcmc", URL_SAFE, 140, 190)),
    kind("DIGITALOCEAN_TOKEN", KEY, of("dop_v1_", HEX, 64)),
    kind("DATABRICKS_TOKEN", KEY, of("dapi", HEX, 32), of("dapi", HEX, 32, suffix="-2")),
    kind("VAULT_TOKEN", KEY, of("hvs.", ALNUM, 24), of("hvs.", URL_SAFE, 90, 120), of("hvb.", URL_SAFE, 140)),
    Kind("JWT", jwt, no_jwt, KEY),
    Kind("PRIVATE_KEY", private_key, no_private_key, KEY),
    Kind(
        "CONNECTION_STRING",
        human,
        no_connection,
        ("DATABASE_URL", "database url", "connection"),
        frame=connection,
    ),
    Kind(
        "PASSWORD",
        drawn,
        no_password,
        PASSWORD_LABELS,
        frame=lambda rng: rng.choice(PASSWORD_FORMS),
        near_frames=PASSWORD_FORMS,
    ),
)
