"""vLLM's engine arguments from the command line and from options. vLLM itself is not needed."""

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from engine.protocol.options import EngineConfig
from engine.vllm.options import VLLMOptions, check_names, engine_arguments
from proxy.deployment.engines import make_engine
from proxy.settings.model import ModelSettings
from tests.serving import ROOT


@pytest.mark.parametrize(
    ("arguments", "others", "given"),
    [
        (["--port", "1"], ["--port", "1"], {}),
        (["--vllm-tensor-parallel-size", "2"], [], {"tensor_parallel_size": 2}),
        (["--vllm-seed=7", "--host", "h"], ["--host", "h"], {"seed": 7}),
        (["--vllm-enforce-eager", "--host", "h"], ["--host", "h"], {"enforce_eager": True}),
        (["--no-vllm-enable-prefix-caching"], [], {"enable_prefix_caching": False}),
        (["--vllm-async-scheduling", "False"], [], {"async_scheduling": False}),
        (["--vllm-revision", "None"], [], {"revision": None}),
        (["--vllm-dtype", "float32"], [], {"dtype": "float32"}),
        (
            ["--vllm-kv-transfer-config", '{"kv_role": "both"}'],
            [],
            {"kv_transfer_config": {"kv_role": "both"}},
        ),
        (["--vllm-lora-modules", '{"a": "/b"}'], ["--vllm-lora-modules", '{"a": "/b"}'], {}),
        (["--model", "--vllm-x"], ["--model"], {"x": True}),
    ],
)
def test_arguments_of_vllm_are_taken_from_the_command_line(
    arguments: list[str], others: list[str], given: dict[str, Any]
) -> None:
    assert VLLMOptions.from_command_line(arguments) == (others, {"vllm": given} if given else {})


def test_vllm_gets_the_options_that_both_engines_have_if_they_are_set() -> None:
    config = EngineConfig(
        model="m", max_model_len=100, dtype="float32", gpu_memory_utilization=0.5, max_queue_len=3
    )
    assert engine_arguments(config, {"dtype": "bfloat16", "tensor_parallel_size": 2}) == {
        "model": "m",
        "max_model_len": 100,
        "dtype": "bfloat16",
        "gpu_memory_utilization": 0.5,
        "tensor_parallel_size": 2,
        "disable_log_stats": True,
        "enable_lora": False,
        "structured_outputs_config": {"backend": "guidance"},
    }


def test_a_grammar_begins_behind_the_reasoning() -> None:
    config = EngineConfig(model="m", reasoning_parser="qwen3")
    given = {"structured_outputs_config": {"enable_in_reasoning": True}}
    arguments = engine_arguments(config, given)
    assert arguments["reasoning_parser"] == "qwen3"
    assert arguments["structured_outputs_config"] == {"backend": "guidance", "enable_in_reasoning": True}


@pytest.mark.parametrize("option", [{"num_speculative_tokens": 2}, {"device": "cuda"}])
def test_an_option_of_the_in_process_engine_alone_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"--(num-speculative-tokens|device): .*--vllm-"):
        engine_arguments(EngineConfig(**option), {})


def test_an_unknown_argument_is_refused_and_the_nearest_one_named() -> None:
    check_names(["seed"], ["seed", "tensor_parallel_size"])
    with pytest.raises(ValueError, match="'tensor_parallel'; did you mean 'tensor_parallel_size'"):
        check_names(["tensor_parallel"], ["seed", "tensor_parallel_size"])
    with pytest.raises(ValueError, match=r"no engine argument 'x'$"):
        check_names(["x"], ["seed"])


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_that_is_not_installed_is_named_with_its_extra() -> None:
    with pytest.raises(ValueError, match="extra 'vllm' of weir-proxy"):
        make_engine(ModelSettings(engine="vllm"))


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_is_named_before_the_libraries_that_come_with_it() -> None:
    options = ("serve", "--port", "0", "--engine", "vllm")
    serve = (sys.executable, "-m", "tests.blocked", "torch", "proxy", *options)
    run = subprocess.run(serve, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "weir serve: the engine 'vllm' needs vLLM: install the extra 'vllm'" in run.stderr
