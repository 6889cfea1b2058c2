"""`POST /v1/completions`: the request's fields, and the answer as chunks and as a whole."""

from typing import Annotated

from pydantic import Field

from engine.protocol import Channel, Delta, GenerationRequest, Prompt, RequestError, Token
from proxy.wire.openai.answer import ChoicesAnswer, JSONObject
from proxy.wire.openai.fields import GenerationFields, PromptLogprobs, TokenId

# pydantic tries every member of the union. Without `fail_fast` it reports each wrong element of a long list.
Texts = Annotated[list[str], Field(fail_fast=True)]
NonEmptyIds = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
ListOfIds = Annotated[list[NonEmptyIds], Field(fail_fast=True)]


class CompletionRequest(GenerationFields):
    """The fields of a completion of one or more prompts."""

    endpoint = "completions"

    prompt: str | Texts | NonEmptyIds | ListOfIds
    max_tokens: int | None = Field(16, ge=0)
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=20, description="Top alternatives; 0: the chosen token only")
    logprob_token_ids: list[TokenId] = Field(
        default_factory=list,
        max_length=128,
        fail_fast=True,
        description="The alternatives of each token, beside logprobs",
    )
    prompt_logprobs: PromptLogprobs = None
    best_of: int | None = Field(
        None, ge=1, le=128, description="Candidates; the n with the highest logprob per token are returned"
    )
    suffix: str = Field("", description="The text after the output, for models that fill in the middle")
    detokenize: bool = Field(True, description="False: return token ids and no text (TensorRT-LLM)")

    def to_request(self, request_id: str, model: str, *, caller: str = "") -> GenerationRequest:
        """Raises `RequestError` for fields that contradict each other."""
        num_candidates = self.n if self.best_of is None else self.best_of
        if num_candidates < self.n:
            raise RequestError("best_of must not be less than n", param="best_of")
        if num_candidates > self.n and self.stream:
            raise RequestError("best_of more than n cannot be streamed: none is best yet", param="best_of")
        return self.shared_request(
            request_id,
            model,
            caller=caller,
            prompts=self._prompts(),
            echo=self.echo,
            logprobs=self.logprobs,
            logprob_token_ids=self.logprob_token_ids,
            prompt_logprobs=self.prompt_logprobs,
            best_of=self.best_of,
            return_token_ids=not self.detokenize,
            extra={"suffix": self.suffix} if self.suffix else {},
        )

    def _prompts(self) -> tuple[Prompt, ...]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return (prompt,)
        if not prompt:
            raise RequestError("prompt must not be empty", param="prompt")
        if isinstance(prompt[0], int):
            return (tuple(prompt),)
        return tuple(one if isinstance(one, str) else tuple(one) for one in prompt)


class CompletionAnswer(ChoicesAnswer):
    """The answer to a completion, made from released deltas."""

    fields: CompletionRequest
    object = chunk_object = "text_completion"

    def __init__(self, fields: CompletionRequest, request: GenerationRequest) -> None:
        super().__init__(fields, request, gives_ids=fields.return_token_ids or not fields.detokenize)
        self._offsets = [0] * request.num_outputs
        """Characters released so far, for each output."""

    def begin_choice(self, delta: Delta) -> JSONObject:
        offset = self._offsets[delta.index] = self._offsets[delta.index] + len(delta.text)
        text = delta.text if self.fields.detokenize else ""
        return {"index": delta.index, "text": text, "logprobs": self._logprobs(delta, offset)}

    def _logprobs(self, delta: Delta, end: int) -> JSONObject | None:
        """`end`: the offset in the released text at which the delta's text and its last token end."""
        if self.request.sampling.logprobs is None:
            return None
        offset = end - sum(len(token.text) for token in delta.tokens)
        tokens: list[Token] = []
        offsets: list[int] = []
        for token in delta.tokens:
            if token.logprob is not None or delta.channel == "echo":
                tokens.append(token)
                offsets.append(offset)
            offset += len(token.text)
        if not tokens:
            return None
        return {
            "tokens": [self.token_name(token) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": offsets,
        }

    def _top(self, token: Token) -> dict[str, float] | None:
        """The top alternatives by name, and always the chosen token, as in OpenAI's completions."""
        if token.logprob is None:
            return None
        top = {self.token_name(t): t.logprob for t in token.top[: self.request.sampling.num_top_logprobs]}
        top.setdefault(self.token_name(token), token.logprob)
        return top

    def empty_content(self) -> JSONObject:
        return {"text": []}

    def pieces_of(self, whole: JSONObject, channel: Channel) -> list[str]:
        pieces: list[str] = whole["text"]
        return pieces

    def fold_choice(self, whole: JSONObject, part: JSONObject) -> None:
        whole["text"].append(part["text"])
        if part["logprobs"] is not None:
            if whole["logprobs"] is None:
                whole["logprobs"] = {key: [] for key in part["logprobs"]}
            for key, values in part["logprobs"].items():
                whole["logprobs"][key] += values

    def finish_choice(self, whole: JSONObject) -> JSONObject:
        return {**whole, "text": "".join(whole["text"])}
