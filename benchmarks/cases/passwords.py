"""Passwords and tokens after a word for them, in the forms that people and programs write."""

import random
import string
from collections.abc import Iterator

from benchmarks.cases.case import Case, with_value

_FORMS = (
    # (form, name): `{v}` is the value.
    ("password: {v}", "prose"),
    ("Password: {v}", "prose"),
    ("My password is {v}", "prose"),
    ("the password is {v}, please change it", "prose"),
    ("Your temporary password is: {v}\nPlease log in.", "prose"),
    ("You can log in with user admin and password {v}.", "prose"),
    ("login: mkowalski / password: {v}", "prose"),
    ("user: root pass: {v}", "prose"),
    ('The wifi password is "{v}".', "prose"),
    ("I set the passphrase to `{v}` yesterday", "prose"),
    ("The admin password for the staging database is {v}", "prose"),
    ("username=deploy password={v}", "prose"),
    ("- **Password**: `{v}`", "prose"),
    ("| password | {v} |", "prose"),
    ("PIN and passcode: {v}", "prose"),
    ("Das Passwort lautet {v}", "prose"),
    ("Passwort: {v}", "prose"),
    ("Mot de passe : {v}", "prose"),
    ("La contraseña es {v}", "prose"),
    ("contraseña: {v}", "prose"),
    ("senha: {v}", "prose"),
    ("hasło: {v}", "prose"),
    ("пароль: {v}", "prose"),
    ("密码：{v}", "prose"),
    ("パスワード: {v}", "prose"),
    ("Wachtwoord: {v}", "prose"),
    ("La password è {v}", "prose"),
    ('password = "{v}"', "code"),
    ("password='{v}'", "code"),
    ("DB_PASSWORD={v}", "code"),
    ("export DB_PASS='{v}'", "code"),
    ("POSTGRES_PASSWORD: {v}", "code"),
    ("MYSQL_ROOT_PASSWORD={v}\nMYSQL_DATABASE=shop", "code"),
    ('"password": "{v}",', "code"),
    ('{{"user": "anna", "password": "{v}"}}', "code"),
    ("spring.datasource.password={v}", "code"),
    ("define('DB_PASSWORD', '{v}');", "code"),
    ('conn = connect(host="db", user="app", password="{v}")', "code"),
    ("'PASSWORD': '{v}',", "code"),
    ('$password = "{v}";', "code"),
    ("const dbPassword = '{v}';", "code"),
    ('String adminPassword = "{v}";', "code"),
    ('db_password := "{v}"', "code"),
    ("<password>{v}</password>", "code"),
    ("curl -u admin:{v} https://intranet.example.org/api", "code"),
    ("mysql -u root -p{v} shop", "code"),
    ("sshpass -p '{v}' ssh deploy@web01", "code"),
    ("--password {v}", "code"),
    ("--password={v} --host=db", "code"),
    ("https://example.org/login?user=anna&password={v}&next=/", "code"),
    ("IDENTIFIED BY '{v}'", "code"),
    ("ALTER USER app WITH PASSWORD '{v}';", "code"),
    ("requirepass {v}", "code"),
    ("smtp_pass: {v}", "code"),
    ("pwd={v};", "code"),
    ("machine api.example.org login anna password {v}", "code"),
)
_TOKEN_FORMS = (
    "api_key = {v}",
    'api_key = "{v}"',
    "API_KEY={v}",
    "apikey: {v}",
    '"apiKey": "{v}"',
    "My API key is {v}.",
    "X-API-Key: {v}",
    "Authorization: Bearer {v}",
    "-H 'Authorization: Token {v}'",
    "access_token={v}&expires_in=3600",
    '"access_token": "{v}"',
    "client_secret: {v}",
    "CLIENT_SECRET='{v}'",
    "SECRET_KEY = '{v}'",
    'auth_token := "{v}"',
    "the token is {v}",
    "secret: {v}",
    "JWT_SECRET={v}",
    "const secret = '{v}';",
    "encryption_key={v}",
    "https://api.example.org/v1/items?api_key={v}&page=2",
    "session_token: {v}",
    "refresh_token={v}",
    "webhook secret: {v}",
)
_URL_FORMS = (
    "postgres://app:{v}@db.internal:5432/shop",
    "mysql+pymysql://root:{v}@127.0.0.1/shop",
    "mongodb+srv://app:{v}@cluster0.mongodb.net/prod?retryWrites=true",
    "redis://:{v}@cache:6379/0",
    "amqp://guest:{v}@mq:5672//",
    "https://anna:{v}@git.example.org/team/app.git",
    "Server=tcp:db.example.org;Database=shop;User Id=app;Password={v};Encrypt=True",
    "jdbc:sqlserver://db:1433;databaseName=shop;user=sa;password={v};",
    "jdbc:mysql://db:3306/shop?user=app&password={v}",
    "host=db user=app password={v} dbname=shop",
)
_WORDS = [
    "hunter",
    "winter",
    "sommer",
    "dragon",
    "monkey",
    "tiger",
    "purple",
    "coffee",
    "banana",
    "soccer",
    "guitar",
    "orange",
    "silver",
    "pepper",
    "cookie",
    "sunshine",
    "princess",
    "flower",
    "shadow",
    "master",
]


def cases(seed: int = 1) -> Iterator[Case]:
    """Return about 260 cases: human passwords, tokens without a form, and passwords in addresses."""
    rng = random.Random(f"{seed} passwords")
    for form, kind in _FORMS * 2:
        value = human(rng) if kind == "prose" or rng.random() < 0.7 else strong(rng)
        yield with_value("after a word", f"password, {kind}", form.format(v=value), value)
    for form in _TOKEN_FORMS * 4:
        value = token(rng)
        yield with_value("after a word", "token", form.format(v=value), value)
    for form in _URL_FORMS * 3:
        value = human(rng, marks="!-_.") if rng.random() < 0.5 else token(rng)
        yield with_value("after a word", "address", form.format(v=value), value)


def human(rng: random.Random, marks: str = "!#$%*-_.?") -> str:
    """A password as people choose one: a word or two, figures, a mark."""
    word, other = rng.choice(_WORDS), rng.choice(_WORDS)
    figures, mark = str(rng.randint(1, 9999)), rng.choice(marks)
    swapped = word.translate(str.maketrans("aeios", "@3105"))
    return rng.choice(
        (
            f"{word}{figures}{mark}!",
            f"{word.capitalize()}{figures}{mark}",
            f"{swapped.capitalize()}{figures}",
            f"{word.capitalize()}{other.capitalize()}{figures}",
            f"{word}-{other}-{figures}",
            f"{word[:4].capitalize()}{mark}{figures}{other}",
            f"My{word.capitalize()}{mark}{rng.randint(1950, 2026)}",
        )
    )


def strong(rng: random.Random) -> str:
    """A password that a program draws."""
    members = string.ascii_letters + string.digits + "!#%*+-_.?@^"
    return rng.choice(string.ascii_letters) + "".join(rng.choices(members, k=rng.randint(9, 22))) + "7"


def token(rng: random.Random) -> str:
    """A token without a form of its own."""
    members, low, high = rng.choice(
        (
            ("0123456789abcdef", 32, 32),
            ("0123456789abcdef", 40, 64),
            (string.ascii_letters + string.digits, 20, 48),
            (string.ascii_lowercase + string.digits, 24, 40),
            (string.ascii_letters + string.digits + "-_", 22, 64),
        )
    )
    return (
        rng.choice(string.ascii_letters[:6])
        + "".join(rng.choices(members, k=rng.randint(low, high) - 2))
        + "7"
    )
