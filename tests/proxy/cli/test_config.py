"""`weir config`: check, explain, key."""

import json
import re
from pathlib import Path

import pytest

from proxy.cli.cli import main
from proxy.deployment.keys import digest_of
from proxy.settings.serve import load_settings

HASH = f"sha256:{digest_of(b'k')}"
WRONG = f"""\
port: 99999
upstream_retries: many
models:
  small: {{engine: openai, upstraem: http://x, policy: strickt}}
  tapes: {{engine: replay, recordings: nowhere}}
  demo: {{model: ./nofolder}}
policies:
  strict:
    hooks:
      - pii
      - phrazes
      - {{path: phrases, args: {{phrasez: [x]}}}}
    hook_timout: 5
  lax: {{limits: {{max_tokens: 0}}}}
default_policy: strict
keys:
  alice: {{hash: hunter2, policy: {{smal: strict}}}}
  bob: {{tenant: t}}
  carol: {{hash: "{HASH}", models: [tapez]}}
"""
RIGHT = f"""\
models:
  small: {{engine: echo, aliases: [tiny]}}
policies:
  strict:
    hooks:
      - pii
      - {{path: remote, name: judge, mode: shadow, args: {{url: "http://u:hunter2@127.0.0.1/x"}}}}
    limits: {{max_tokens: 8}}
  lax: {{}}
default_policy: lax
keys:
  alice: {{hash: "{HASH}", tenant: acme, policy: {{tiny: strict}}}}
"""


def run(*arguments: str) -> int:
    try:
        main(["config", *arguments])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def test_check_tells_all_that_is_wrong_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weir.yaml").write_text(WRONG)
    assert run("check", f"{tmp_path}/weir.yaml") == 1
    out = capsys.readouterr().out
    told = [line.removeprefix(f"{tmp_path}/weir.yaml:") for line in out.splitlines()]
    begins = [
        "1: port: Input should be less than or equal to 65535",
        "2: upstream_retries: Input should be a valid integer",
        "4: models.small.policy: there is no policy 'strickt'; did you mean 'strict'?",
        "4: models.small.upstraem: there is no such option; did you mean 'upstream'?",
        "4: models.small: engine 'openai' needs an upstream",
        "5: models.tapes.recordings: nowhere holds no recording",
        "6: models.demo.model: there is no model folder and no GGUF file ./nofolder",
        "11: policies.strict.hooks[1]: hook 'phrazes' names no class",
        "12: policies.strict.hooks[2]: hook 'phrases' could not be built",
        "13: policies.strict.hook_timout: there is no such option; did you mean 'hook_timeout'?",
        "14: policies.lax.limits.max_tokens: Input should be greater than or equal to 1",
        "17: keys.alice.hash: this must be sha256: and 64 hexadecimal digits",
        "17: keys.alice.policy: there is no model 'smal'; did you mean 'small'?",
        "18: keys.bob.hash: Field required",
        "19: keys.carol.models: there is no model 'tapez'; did you mean 'tapes'?",
    ]
    assert len(told) == len(begins)
    assert all(line.startswith(begin) for line, begin in zip(told, begins, strict=True)), out
    assert "hunter2" not in out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("models: {a: 5}", "models.a: "),
        ("models: {a: {engine: echo}}\nkeys: {k: 5}", "keys.k: "),
        ("models: 5", "models: "),
        ("policies: {p: {hooks: 5}}", "policies.p.hooks: "),
        ("engine: echo\nhooks: [pii]\npolicies: {p: }", "hooks: with policies"),
        ("engine: echo\nworkers: 2\nstate: redis-no://x", "state: "),
    ],
)
def test_check_survives_any_content(
    content: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weir.yaml").write_text(content)
    assert run("check", f"{tmp_path}/weir.yaml") == 1
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("content", ["[1]", "1: 2", "a: [", "\tx: 1"])
def test_a_file_without_options_by_name_is_refused(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weir.yaml").write_text(content)
    assert run("check", f"{tmp_path}/weir.yaml") == 2
    assert run("check", f"{tmp_path}/none.yaml") == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: 1\nb: [\n c: : hunter2\n", "is not YAML (line 3, column 5)"),
        ("api_key: hunter2\n\tb: 1", "is not YAML (line 2, column 1)"),
        ("- hunter2", "must hold options by name"),
        ("1: hunter2", "must hold options by name"),
        (None, "No such file"),
    ],
)
def test_check_says_of_a_file_that_is_no_settings_file_what_serve_says(
    content: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weir.yaml"
    if content is not None:
        file.write_text(content)
    assert run("check", str(file)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"weir config check: {file} ")
    assert told in said
    assert "hunter2" not in said
    if content is not None:
        with pytest.raises(SystemExit) as left:
            load_settings(["--config", str(file)])
        assert str(left.value) == said.strip().replace("config check", "serve")


UPSTREAM = "engine: openai\nupstream: "
TWICE = "two upstreams are called h: give each a name of its own"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (UPSTREAM + "htp://h", "2: upstream[0]: the upstream is not an http or https URL"),
        (UPSTREAM + "http://", "2: upstream[0]: the upstream's URL has no host"),
        (
            UPSTREAM + "\n- http://h\n- {url: 'http://u:hunter2@h:x'}",
            "4: upstream[1]: the upstream's URL cannot",
        ),
        (UPSTREAM + "[http://h/v1, http://h/v2]", f"2: upstream: {TWICE}"),
        (
            "models:\n  a: {engine: messages, upstream: h}",
            "2: models.a.upstream[0]: the upstream is not an http",
        ),
        ("state: redis://:hunter2@h:x", "1: state: the URL cannot be read"),
        ("state: postgresql://u:/hunter2@h/db", "1: state: the URL has an @ after a /"),
        ("store: sqlite:///nowhere/weir.sqlite", "1: store: there is no folder nowhere"),
        ("store: 'sqlite:///'", "1: store: the URL names no file"),
        ("ssl_certfile: nowhere.pem", "1: ssl_certfile: nowhere.pem cannot be read"),
        ("port: 9000\nadmin_port: 9000", "2: admin_port: 9000 is the port of clients"),
        ("admin_ssl: false", "1: admin_ssl: without --admin-port"),
        ("host: 0.0.0.0\nport: 9000\nadmin_port: 9000", "3: admin_port: 9000 is the port of clients"),
        ("models:\n  '': {engine: echo}", "1: models: a name is empty"),
        ("models:\n  a: {engine: echo, aliases: ['']}", "2: models.a.aliases: a name is empty"),
        ("policies:\n  ' ': {}", "1: policies: a name is empty"),
        (f"keys:\n  '': {{hash: '{HASH}'}}", "1: keys: a name is empty"),
        (f"keys:\n  a: {{hash: '{HASH}', tenant: ''}}", "2: keys.a.tenant: a name is empty"),
        ("served_model_name: ['']", "1: served_model_name: a name is empty"),
    ],
)
def test_check_finds_what_would_fail_at_start(
    content: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault of the settings as a whole hides nothing else."""
    file = tmp_path / "weir.yaml"
    file.write_text(content + "\nrecordings: x\nclient_timeout: -1\n")
    assert run("check", str(file)) == 1
    out = capsys.readouterr().out
    assert f"{file}:{told}" in out
    assert "client_timeout: Input should be greater than 0" in out
    assert "hunter2" not in out


@pytest.mark.parametrize(
    "content",
    [
        "store: postgresql://h:1,i:2/db",
        "store: 'sqlite:///:memory:'",
        "port: 9000\nadmin_port: 9000\nadmin_host: 127.0.0.2",
        "port: 0\nadmin_port: 0",
    ],
)
def test_check_lets_pass_what_only_looks_wrong(content: str, tmp_path: Path) -> None:
    (tmp_path / "weir.yaml").write_text(f"engine: echo\n{content}\n")
    assert run("check", f"{tmp_path}/weir.yaml") == 0


PROCESSORS = """\
models:
  a:
    logits_processors:
      - {name: bad_words, policy_only: true}
      - {name: min_tokens, mandatory: true, params: {min_tokens: -1}}
  b: {logits_processors: [nowhere.Processor]}
policies:
  strict:
    logits_processors:
      - {name: bad_words, params: {bad_wordz: [fox]}}
  lax:
    logits_processors:
      - {name: bad_words, params: {bad_words: [fox]}}
default_policy: strict
keys:
  alice: {hash: "HASH", models: [a], policy: strict}
  bob: {hash: "HASH", models: [a], policy: lax}
"""


def test_check_reads_the_parameters_of_logits_processors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hashes = [f"sha256:{digest_of(key)}" for key in (b"a", b"b")]
    content = PROCESSORS.replace("HASH", hashes[0], 1).replace("HASH", hashes[1], 1)
    (tmp_path / "weir.yaml").write_text(content)
    assert run("check", f"{tmp_path}/weir.yaml") == 1
    told = [line.removeprefix(f"{tmp_path}/weir.yaml:") for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "5: models.a.logits_processors[1]: params.min_tokens: Input should be greater than or equal to 0",
        "6: models.b.logits_processors: logits processor 'nowhere.Processor' (nowhere.Processor)"
        " could not be imported: ModuleNotFoundError: No module named 'nowhere'",
        "10: policies.strict.logits_processors[0]: params.bad_wordz: unknown parameter",
    ]


def test_a_name_that_stands_twice_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The policy without hooks would win, and nobody would be told."""
    content = "engine: echo\npolicies:\n  strict: {hooks: [pii]}\n  strict: {}\n"
    (tmp_path / "weir.yaml").write_text(content)
    assert run("check", f"{tmp_path}/weir.yaml") == 1
    assert "weir.yaml:4: strict: this name is given twice here" in capsys.readouterr().out
    assert run("explain", "anonymous", "echo", "--config", f"{tmp_path}/weir.yaml") == 2
    assert "has the name strict twice in one place (line 4)" in capsys.readouterr().err


def test_check_finds_nothing_wrong_with_what_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weir.yaml").write_text(RIGHT)
    assert run("check", f"{tmp_path}/weir.yaml") == 0
    assert "nothing is wrong" in capsys.readouterr().out


NO_API = "engine 'none' answers no request, and nobody can have the hooks judge a text without guard_api"
NO_HOOK = "no hook judges the texts (--hook), so each question about one is an error"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("hooks: [pii]\nengine: none", f"2: warning: engine: {NO_API}"),
        ("models:\n  a: {engine: none}\n  b: {engine: none}", f"1: warning: models: {NO_API}"),
        ("engine: none\nguard_api: [litellm]", f"2: warning: guard_api: {NO_HOOK}"),
        ("engine: echo\nguard_api: [litellm]\nallowed_hooks: [pii]", f"2: warning: guard_api: {NO_HOOK}"),
        ("engine: echo\nmoderations: true", f"2: warning: moderations: {NO_HOOK}"),
        (
            "engine: none\nguard_api: litellm\npolicies: {p: {}, q: }\ndefault_policy: p",
            f"2: warning: guard_api: {NO_HOOK}",
        ),
        ("engine: echo", None),
        ("models: {a: {engine: none}, b: {engine: echo}}", None),
        ("engine: none\nmoderations: true\nhooks: [pii]", None),
        ("engine: none\nmoderations: true\nallowed_hooks: [pii]", None),
        ("engine: none\nguard_api: litellm\npolicies: {p: {}, q: {hooks: [pii]}}\ndefault_policy: p", None),
    ],
)
def test_check_warns_of_a_server_that_judges_nothing(
    content: str, told: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weir.yaml").write_text(content)
    assert run("check", f"{tmp_path}/weir.yaml") == 0
    right, *warnings = capsys.readouterr().out.splitlines()
    assert right.endswith("nothing is wrong")
    warnings = [line for line in warnings if "runs on" not in line]
    assert len(warnings) == (told is not None)
    assert all(str(told) in line for line in warnings)


def test_explain_tells_what_a_request_gets_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weir.yaml").write_text(RIGHT)
    asked = ("explain", "alice", "tiny", "--config", f"{tmp_path}/weir.yaml")
    assert run(*asked, "--json") == 0
    out = capsys.readouterr().out
    explained = json.loads(out)
    assert (explained["model"], explained["engine"], explained["tenant"]) == ("small", "echo", "acme")
    assert (explained["policy"], explained["reason"]) == ("strict", "the key's policy for this model")
    assert [hook["name"] for hook in explained["hooks"]] == ["pii", "judge"]
    assert explained["hooks"][1]["mode"] == "shadow"
    assert explained["limits"] == {"key": {}, "policy": {"max_tokens": 8}}
    assert "hunter2" not in out
    assert run(*asked) == 0
    assert "reason: the key's policy for this model" in capsys.readouterr().out
    assert run("explain", "alcie", *asked[2:]) == 1
    assert "did you mean 'alice'?" in capsys.readouterr().err
    assert run("explain", "alice", "large", *asked[3:]) == 1
    assert "The model 'large' is not served here." in capsys.readouterr().err


def test_explain_tells_a_model_that_is_not_for_the_key_from_one_that_is_not_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hashed = f"sha256:{'0' * 64}"
    keys = f"keys: {{bob: {{hash: '{hashed}', models: [b]}}}}"
    (tmp_path / "weir.yaml").write_text(f"models: {{a: {{engine: echo}}, b: {{engine: echo}}}}\n{keys}\n")
    assert run("explain", "bob", "a", "--config", f"{tmp_path}/weir.yaml") == 1
    told = "The model 'a' is served, and not for the key 'bob': its models are b."
    assert told in capsys.readouterr().err
    assert run("explain", "bob", "c", "--config", f"{tmp_path}/weir.yaml") == 1
    assert "The model 'c' is not served here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"), [(None, "there is no configuration file"), ("prot: 1", "prot: ")]
)
def test_explain_says_what_is_wrong_with_the_file(
    content: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "weir.yaml").write_text(content)
    assert run("explain", "alice", "small", "--config", f"{tmp_path}/weir.yaml") == 2
    error = capsys.readouterr().err
    assert error.startswith("weir config explain: ")
    assert told in error


def test_a_made_key_is_long_and_its_hash_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("key") == 0
    out = capsys.readouterr().out
    key, digest = re.search(r"(weir-[\w-]{43})\n", out), re.search(r"sha256:([0-9a-f]{64})\n", out)
    assert key
    assert digest
    assert digest_of(key[1].encode()) == digest[1]


def test_each_fault_of_an_earlier_value_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weir.yaml"
    ann = f"{{hash: 'sha256:{'0' * 64}', previous: {{hash: x, until: soon}}}}"
    file.write_text(f"engine: echo\nkeys:\n  ann: {ann}\n")
    assert run("check", str(file)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{file}:3: keys.ann.previous.").split(": ")[0] for line in lines] == [
        "hash",
        "until",
    ]
