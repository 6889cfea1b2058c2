"""Keep e-mail addresses from the model: `weir serve --hook examples/private_prompt.py:PrivatePrompt`."""

import re

from hooks import Chunk, GenerationRequest, Verdict, emit, with_prompt_texts

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+", re.ASCII)


class PrivatePrompt:
    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        # Every text that the prompt is made of: messages, tools, tools' results and more.
        return with_prompt_texts(request, lambda text: ADDRESS.sub("[e-mail]", text.text))

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)
