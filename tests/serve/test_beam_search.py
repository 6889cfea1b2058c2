"""Beam search through the service, hooks in front of it."""

from collections.abc import Callable

from openai import OpenAI

HOOK = """
from hooks import emit

class Counts:
    '''Puts before its text how often it was called for this stream.'''
    def __call__(self, chunk):
        chunk.state["calls"] = chunk.state.get("calls", 0) + 1
        return emit(f"{chunk.state['calls']}:" + chunk.pending if chunk.pending else "")
"""


def test_a_hook_sees_each_hypothesis_once_streamed_or_not(  # contract 5.5
    weir_serve: Callable[..., str], tmp_path_factory
) -> None:
    path = tmp_path_factory.mktemp("beams") / "counts.py"
    path.write_text(HOOK)
    request = {
        "model": "weir-demo",
        "prompt": "Hello! Our opening hours",
        "n": 3,
        "max_tokens": 8,
        "extra_body": {"use_beam_search": True},
    }
    url = weir_serve("--hook", f"{path}:Counts")
    with OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        whole = client.completions.create(**request)
        texts = {choice.index: choice.text for choice in whole.choices}
        streamed = dict.fromkeys(range(3), "")
        for chunk in client.completions.create(**request, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
    assert streamed == texts
    assert all(text.startswith("1:") and ":" not in text[2:] for text in texts.values())
    assert len(set(texts.values())) == 3
