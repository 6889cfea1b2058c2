"""Shows whether logits processors work at all: every answer is "Hello world!".

The idea is Dynamo's, for operators: `WEIR_ENABLE_TEST_LOGITS_PROCESSOR=1`.
"""

from engine.logits_processors.api import Context
from engine.processor_specs import ForcedTokenSequenceSpec

TEXT = "Hello world!"


def hello_world(context: Context) -> ForcedTokenSequenceSpec:
    """Raises `ValueError` if the model has no end-of-sequence token, since no answer could end."""
    if not context.eos_token_ids:
        raise ValueError("the test logits processor needs an end-of-sequence token, and this model has none")
    token_ids = context.tokenizer.encode(TEXT, add_special_tokens=False)
    return ForcedTokenSequenceSpec(tuple(token_ids), context.eos_token_ids[0])
