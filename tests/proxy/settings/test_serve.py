"""Settings from the command line, the environment and a YAML file."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import BaseModel

from engine.protocol.options import EngineConfig
from engine.protocol.parts import ENGINES
from hooks.loading.options import PipelineOptions
from proxy.settings.groups import options_of
from proxy.settings.serve import ServeSettings, has_own_models, load_settings, option_texts


def test_the_defaults_serve_the_model_that_ships() -> None:
    settings = load_settings([])
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert (settings.base_model.engine, settings.base_policy.hooks) == ("auto", [])
    assert Path(settings.base_model.local.model).name == "model"


def test_the_command_line_wins_over_the_environment_and_the_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text("port: 1\nmax_num_seqs: 2\nmax_model_len: 3\n")
    monkeypatch.setenv("WEIR_PORT", "10")
    monkeypatch.setenv("WEIR_MAX_NUM_SEQS", "20")
    settings = load_settings(["--config", str(file), "--port", "100"])
    local = settings.base_model.local
    assert (settings.port, local.max_num_seqs, local.max_model_len) == (100, 20, 3)
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    assert load_settings([]).base_model.local.max_model_len == 3


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ("model", "tokenizer", "speculative_model", "record", "recordings", "ssl_certfile", "ssl_keyfile")
    lines = [f"{name}: ~/{name}" for name in (*names, "ssl_ca_certs", "api_key_file")]
    more = ["num_speculative_tokens: 1", "probes: [~/harm]", "models: {a: {model: ~/a}}"]
    (tmp_path / "weir.yaml").write_text("\n".join([*lines, *more]))
    (tmp_path / "api_key_file").write_text("secret")
    monkeypatch.setenv("WEIR_CONFIG", "~/weir.yaml")
    settings = load_settings([])
    model = settings.base_model
    values = {**vars(settings), **vars(model), **vars(model.local)}
    for name in names:
        assert str(values[name]) == f"{tmp_path}/{name}"
    assert model.local.probes == (f"{tmp_path}/harm",)
    assert settings.models["a"].local.model == f"{tmp_path}/a"
    given = load_settings(["--model=~/b", "--probe=~/c,~nobody-here/d"])
    assert given.base_model.local.model == f"{tmp_path}/b"


def test_no_more_options_are_offered_than_somebody_needs() -> None:
    assert len(options_of(ServeSettings)) <= 111


def test_limits_of_stored_responses_follow_from_their_number() -> None:
    usual, many = ServeSettings(), ServeSettings(max_stored_responses=100_000)
    assert (usual.max_stored_responses_per_caller, many.max_stored_responses_per_caller) == (1000, 10_000)
    assert usual.max_stored_bytes == 8 * usual.max_stored_bytes_per_caller < many.max_stored_bytes
    assert ServeSettings(max_stored_responses=1).max_stored_bytes == usual.max_stored_bytes


def test_hooks_come_with_arguments_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text("hooks:\n  - acme.Plain\n  - path: acme.Fancy\n    args: {phrases: [a, b]}\n")
    hooks = load_settings(["--config", str(file)]).base_policy.hooks
    assert [(hook.path, hook.args) for hook in hooks] == [
        ("acme.Plain", {}),
        ("acme.Fancy", {"phrases": ["a", "b"]}),
    ]


def test_lists_are_given_by_repeating_or_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(["--hook", "a.B", "--hook", "c.py:D", "--served-model-name", "x"])
    assert [hook.path for hook in settings.base_policy.hooks] == ["a.B", "c.py:D"]
    assert settings.served_model_name == ["x"]
    monkeypatch.setenv("WEIR_API_KEY", "k1,k2")
    assert [key.get_secret_value() for key in load_settings([]).api_key] == ["k1", "k2"]


def test_keys_are_not_shown() -> None:
    settings = load_settings(["--api-key", "hunter2", "--upstream-api-key", "hunter3"])
    assert "hunter" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("prot: 8000", "prot: there is no such option; did you mean 'port'"),
        ("port: many", "port: Input should be a valid integer"),
        ("hooks: [{path: a.B, arg: {}}]", "hooks.0.arg: there is no such option; did you mean 'args'"),
        ("port: [", "is not YAML"),
        ("[1]", "must hold options by name"),
        ("device: tpu", "device: Input should be"),
        ("reasoning_parser: qwen9", "unknown parser 'qwen9'; known parsers are deepseek_r1,"),
        ("tool_call_parser: qwen3", "unknown parser 'qwen3'; known parsers are auto,"),
    ],
)
def test_a_wrong_file_is_refused_with_the_option_named(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit, match=reason):
        load_settings(["--config", str(file)])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weir.yaml"
    file.touch()
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(SystemExit, match=r"weir.yaml cannot be read \(Permission denied\)"):
        load_settings(["--config", str(file)])


def test_a_file_that_is_not_yaml_is_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text("api_key: [hunter2\nport: 1")
    with pytest.raises(SystemExit, match=r"not YAML \(line 2, column 5\)") as left:
        load_settings(["--config", str(file)])
    assert "hunter" not in str(left.value)


def test_the_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        load_settings(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    for name in options_of(ServeSettings):
        assert f"--{name.replace('_', '-')}" in text
    assert "list[" not in text


def test_the_help_has_the_text_of_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["-h"], ["--port", "1", "--help"]):
        with pytest.raises(SystemExit):
            load_settings(asked)
        assert "Address to listen on" in capsys.readouterr().out


def test_a_start_reads_no_help_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.settings.serve.help_texts", Mock(side_effect=AssertionError))
    assert load_settings(["--port", "1"]).port == 1


def test_a_hook_may_be_named_as_tensorrt_llm_names_it(tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text("post_processor_hook: acme.First\nhooks: [acme.Second]\n")
    for arguments in (
        ["--config", str(file)],
        ["--post_processor_hook", "acme.First", "--hook", "acme.Second"],
    ):
        assert [spec.path for spec in load_settings(arguments).hook_specs] == ["acme.First", "acme.Second"]


def test_keys_of_a_file_join_the_others(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("hunter2\n\n  hunter3 \r\nhunter4")
    settings = load_settings(["--api-key", "k1", "--api-key-file", str(file)])
    keys = [key.get_secret_value() for key in settings.api_key]
    assert keys == ["k1", "hunter2", "hunter3", "hunter4"]
    assert "hunter" not in repr(settings)


@pytest.mark.parametrize("content", [b"", b" \n\n", b"hunter2\xff", None])
def test_a_file_without_keys_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """It must not open the server, and what it holds is not told."""
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SystemExit, match="api_key_file") as left:
        load_settings(["--api-key-file", str(file)])
    assert "hunter" not in str(left.value)


@pytest.mark.parametrize(("engine", "is_own"), [("auto", True), ("local", True), ("echo", False)])
def test_workers_may_serve_a_model_of_this_machine(engine: str, is_own: bool) -> None:
    settings = load_settings(["--workers", "2", "--engine", engine])
    assert (settings.workers, has_own_models(settings)) == (2, is_own)


@pytest.mark.parametrize(("option", "right"), [("state", "redis://"), ("store", "postgresql://")])
def test_the_place_of_shared_state_is_checked_and_not_shown(option: str, right: str) -> None:
    with pytest.raises(SystemExit, match=rf"{option}: .* must begin with sqlite:///") as left:
        load_settings([f"--{option}", "mysql://me:hunter2@there/db"])
    assert "hunter2" not in str(left.value)
    settings = load_settings([f"--{option}", f"{right}:hunter2@there"])
    assert "hunter2" not in repr(settings)


def test_no_group_of_options_hides_a_check_of_another() -> None:
    """pydantic runs one validator of a name: of two groups' with the same name, the other one never runs."""
    groups = [group for group in ServeSettings.__mro__ if issubclass(group, BaseModel)]
    checks = [
        name for one in groups for name in one.__pydantic_decorators__.field_validators if name in vars(one)
    ]
    assert checks
    assert len(checks) == len(set(checks))


def test_an_upstreams_password_is_not_shown() -> None:
    settings = load_settings(["--engine", "openai", "--upstream", "http://me:hunter2@host"])
    assert "hunter" not in repr(settings)


@pytest.mark.parametrize("arguments", [["--api-key="], ["--api-key", "k1", "--api-key", ""]])
def test_an_empty_key_is_refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unset variable leaves an empty key. It must neither open the server nor be a valid key."""
    with pytest.raises(SystemExit, match="api_key"):
        load_settings(arguments)
    monkeypatch.setenv("WEIR_API_KEY", "")
    with pytest.raises(SystemExit, match="api_key"):
        load_settings([])


def test_each_group_of_options_reaches_the_part_that_defines_it() -> None:
    settings = load_settings(
        ["--max-num-seqs", "3", "--max-rewinds", "2", "--terminate-finish-reason", "stop"]
    )
    assert settings.base_model.local == EngineConfig(max_num_seqs=3)
    assert settings.base_policy.options == PipelineOptions(max_rewinds=2, terminate_finish_reason="stop")


def test_arguments_of_vllm_win_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text("engine: vllm\nvllm:\n  tensor_parallel_size: 4\n  seed: 1\n")
    arguments = ["--config", str(file), "--vllm-tensor-parallel-size", "2", "--max-model-len", "9"]
    settings = load_settings(arguments)
    assert settings.base_model.parts.vllm.vllm == {"tensor_parallel_size": 2, "seed": 1}
    assert settings.base_model.local.max_model_len == 9
    monkeypatch.setenv("WEIR_VLLM", '{"seed": 2, "dtype": "float32"}')
    changed = {"tensor_parallel_size": 2, "seed": 2, "dtype": "float32"}
    assert load_settings(arguments).base_model.parts.vllm.vllm == changed


def test_every_option_has_a_help_text() -> None:
    assert option_texts().keys() == options_of(ServeSettings).keys()


def test_upstreams_are_given_by_repeating_with_commas_or_with_more_about_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["http://a:1", "https://me:x,y@b:2/v1"]
    repeated = load_settings(["--upstream", both[0], "--upstream", both[1]])
    monkeypatch.setenv("WEIR_UPSTREAM", ", ".join(both))
    for settings in (repeated, load_settings([])):
        assert [upstream.url for upstream in settings.base_model.upstream] == both
    monkeypatch.delenv("WEIR_UPSTREAM")
    file = tmp_path / "weir.yaml"
    for text in (f"upstream: {both[0]}", f"upstream: [{both[0]}]", f"upstream: {{url: '{both[0]}'}}"):
        file.write_text(text)
        (one,) = load_settings(["--config", str(file)]).base_model.upstream
        assert one.url == both[0]
    file.write_text(f"upstream: [{both[0]}, {{url: '{both[1]}', weight: 2, api_key: k, max_connections: 3}}]")
    first, second = load_settings(["--config", str(file)]).base_model.upstream
    assert (first.weight, second.weight, second.max_connections) == (1.0, 2.0, 3)


def test_no_upstreams_url_or_key_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text("upstream: [{url: 'http://me:hunter2@a', api_key: hunter3}]\n")
    assert "hunter" not in repr(load_settings(["--config", str(file)]))
    file.write_text("upstream: [{url: 'http://me:hunter2@a', api_key: hunter3, weight: 0, prot: 1}]\n")
    with pytest.raises(SystemExit, match=r"upstream\.0") as caught:
        load_settings(["--config", str(file)])
    assert "weight" in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_a_misspelt_variable_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("WEIR_HOOK_TIMEOT", "WEIR_PORT", "WEIR_SERVICE_HOST", "WEIR_PORT_8000_TCP_ADDR"):
        monkeypatch.setenv(name, "5")
    assert load_settings([]).port == 5
    assert caplog.messages == [
        "the variable WEIR_HOOK_TIMEOT is no option; did you mean 'WEIR_HOOK_TIMEOUT'?"
    ]


@pytest.mark.parametrize("engine", ENGINES.shipped)
def test_a_model_takes_only_the_defaults_that_its_engine_can_obey(engine: str) -> None:
    defaults = {"logits_processors": ["bad_words"], "vllm": {"seed": 1}, "tokenizer": "t"}
    needs = {"recordings": "r", "upstream": ["http://u"]}
    given: dict[str, Any] = {**defaults, **needs, "models": {"a": {"engine": engine}}}
    model = ServeSettings(**given).models["a"]
    assert bool(model.local.logits_processors) is (engine in ("local", "vllm"))
    assert model.has_vllm_options is (engine == "vllm")
