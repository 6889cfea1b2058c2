"""The outputs of one request: a task for each of them takes vLLM's token ids and puts deltas into a queue."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import Any

from vllm import SamplingParams
from vllm.exceptions import VLLMClientError
from vllm.inputs import tokens_input
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from engine.core.best_of import hold_candidates
from engine.core.output_processor import OutputProcessor
from engine.local.stream import LocalStream
from engine.protocol import DeadEngineError, Delta, EngineError, LogitsProcessorError, RequestError, Rewind
from engine.protocol.flow import Flow
from engine.sampling.logits_processors.names import OTHER_FIELDS, PARAMETER_FIELDS
from engine.sampling.sampler import SampledToken
from engine.sampling.sampling_state import Logprobs, NoOtherToken
from engine.scheduling.sequence import Sequence, SequenceGroup
from engine.upstream.request_tracker import TrackedRequest
from engine.vllm.limits import RunnerLimits
from engine.vllm.places import FairPlaces
from engine.vllm.processors import FailureNotes
from engine.vllm.sampling import (
    KV_TRANSFER,
    WORDS,
    WorkerRequest,
    is_allowed,
    is_for_one_token,
    prefill_fields,
    read_logprobs,
    request_fields,
)

logger = logging.getLogger("weir.engine")

_numbers = count()
"""Make the ids of vLLM's requests unique, whatever ids their callers gave."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """All that the requests of one engine share."""

    llm: AsyncLLM
    prefill: AsyncLLM | None
    """Computes prompts for `llm`. None: `llm` computes them."""
    processor: OutputProcessor
    places: FairPlaces
    """The outputs that vLLM has at the same time."""
    notes: FailureNotes | None
    """Reports which logits processor failed. None: vLLM's worker runs no processors of Weir."""
    loras: Mapping[str, LoRARequest]
    """By the name of the model that requests ask for."""
    limits: RunnerLimits | None
    """None: the model runner takes fields of any length."""


def lora_requests(folders: Mapping[str, str]) -> dict[str, LoRARequest]:
    """Adapters by their names, as vLLM gets them."""
    return {name: LoRARequest(name, i, folder) for i, (name, folder) in enumerate(folders.items(), 1)}


class Outputs:
    """The tasks of one request, and the stream of its deltas."""

    def __init__(self, runtime: Runtime, group: SequenceGroup, flow: Flow, tracked: TrackedRequest) -> None:
        self.stream = LocalStream(flow, group.request.num_outputs)
        flow.on_rewind = self._rewind
        self._runtime, self._group, self._tracked = runtime, group, tracked
        self._lora = runtime.loras.get(group.request.model)
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self) -> None:
        for seq in self._group.sequences:
            self._begin(self._run(seq), seq.index)

    async def wait(self) -> None:
        """Wait until every output has ended. Raises the error of one that failed."""
        await self.stream.wait()

    def _rewind(self, rewind: Rewind) -> None:
        """Rewind an output, and let it continue from there."""
        self.stream.rewind(rewind.index)
        self._begin(self._run_again(self._tasks[rewind.index], rewind), rewind.index)

    async def _run_again(self, before: "asyncio.Task[None]", rewind: Rewind) -> None:
        seq = self._group.sequences[rewind.index]
        await self._end([before])
        self.stream.resume(rewind.index)
        seq.rewind(rewind.num_tokens, rewind.banned)
        await self._run(seq)

    async def aclose(self) -> None:
        """End the work in vLLM."""
        await self._end(self._tasks.values())
        self._tracked.usage = self._group.usage
        self._group.close()

    def _begin(self, work: Coroutine[Any, Any, None], index: int) -> None:
        self._tasks[index] = asyncio.get_running_loop().create_task(work)

    async def _end(self, tasks: Iterable["asyncio.Task[None]"]) -> None:
        tasks = list(tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, seq: Sequence) -> None:
        request = self._group.request
        try:
            async with self._runtime.places.turn(request.caller, request.priority):
                while seq.finish_reason is None:
                    await self._ask(seq)
        except (EngineError, RequestError) as error:
            self.stream.fail(error)
        except EngineDeadError:
            self.stream.fail(DeadEngineError("The engine has failed."))
        except (VLLMClientError, ValueError) as error:
            reason = str(error.args[0]) if error.args else type(error).__name__
            self.stream.fail(RequestError(reason, param=getattr(error, "parameter", None)))
        except Exception as error:
            logger.error("vLLM failed a request: %s", type(error).__name__)
            logger.debug("vLLM failed a request", exc_info=True)
            self.stream.fail(EngineError("The engine failed this request."))

    async def _ask(self, seq: Sequence) -> None:
        """Let the sequence continue from where it is, until it ends, or a ban is over."""
        is_new = not seq.num_output_tokens and not seq.was_rewound
        transfer = await self._prefill(seq) if self._runtime.prefill is not None and is_new else None
        if seq.num_output_tokens == seq.max_tokens and not seq.needs_prompt_logprobs:
            self._put(self._runtime.processor.advance(seq, None))
            return
        key = f"weir-{next(_numbers)}"
        params = self._params(seq, key, transfer)
        begun_at, banned = seq.num_output_tokens, seq.sampling.banned_here
        is_whole = not is_for_one_token(seq)
        async with aclosing(self._generate(self._runtime.llm, seq, params, key)) as outputs:
            async for output in outputs:
                failure = self._failure(key, params)
                if failure is not None and not (banned and failure.left_no_token):
                    raise failure
                self._read_output(seq, output, banned, has_no_token=failure is not None)
                if seq.finish_reason is not None:
                    return
        if is_whole or seq.num_output_tokens == begun_at:
            logger.error("vLLM ended an output before its time (%s)", output.outputs[0].finish_reason)
            raise EngineError("The engine ended this output before its time.")

    async def _prefill(self, seq: Sequence) -> dict[str, Any] | None:
        """Have the prompt computed by the engine for prompts. Returns what the other engine must know."""
        assert self._runtime.prefill is not None
        params = SamplingParams(output_kind=RequestOutputKind.DELTA, **prefill_fields(seq))
        transfer: dict[str, Any] | None = None
        key = f"weir-{next(_numbers)}"
        async with aclosing(self._generate(self._runtime.prefill, seq, params, key)) as outputs:
            async for output in outputs:
                transfer = output.kv_transfer_params or transfer
                self._read_prompt(seq, output)
        return transfer

    def _generate(
        self, llm: AsyncLLM, seq: Sequence, params: SamplingParams, key: str
    ) -> AsyncGenerator[RequestOutput, None]:
        request = self._group.request
        prompt = tokens_input(list(seq.token_ids), cache_salt=request.cache_salt)
        guide = seq.sampling.guide
        outputs: AsyncGenerator[RequestOutput, None] = llm.generate(
            prompt,
            params,
            key,
            lora_request=self._lora,
            priority=request.priority,
            # Completions do not reason: the grammar begins with the output.
            reasoning_ended=True if guide is not None and guide.reasoning is None else None,
        )
        return outputs

    def _params(self, seq: Sequence, key: str, transfer: dict[str, Any] | None) -> SamplingParams:
        fields = request_fields(seq)
        if self._runtime.limits is not None:
            self._runtime.limits.check_bias(fields)
        extra_args = {} if transfer is None else {KV_TRANSFER: transfer}
        if "structured_outputs" in fields:
            fields["structured_outputs"] = StructuredOutputsParams(**fields["structured_outputs"])
        words = fields.pop(WORDS, None)
        # A grammar's guide is a processor too, and limits are, but vLLM honours both by itself.
        num_native = (seq.sampling.guide is not None) + len(seq.sampling.limits)
        if len(seq.sampling.processors) > num_native:
            if self._runtime.notes is None:
                raise RequestError(
                    "logits_processors: this server has no logits processors.", param="logits_processors"
                )
            extra_args |= WorkerRequest.of(seq, key, (*OTHER_FIELDS, *PARAMETER_FIELDS)).to_args()
        params = SamplingParams(
            output_kind=RequestOutputKind.DELTA, skip_clone=True, extra_args=extra_args or None, **fields
        )
        if words is not None:
            params._bad_words_token_ids = words
        return params

    def _failure(self, key: str, params: SamplingParams) -> LogitsProcessorError | None:
        """The failure of a processor. A token that is drawn after it never gets further."""
        notes = self._runtime.notes
        return None if notes is None or not params.extra_args else notes.taken(key)

    def _read_output(
        self, seq: Sequence, output: RequestOutput, banned: frozenset[int], *, has_no_token: bool
    ) -> None:
        """`has_no_token`: processors and `banned` together leave none. Then vLLM draws any token."""
        completion = output.outputs[0]
        if self._runtime.prefill is None:
            self._read_prompt(seq, output)
        deltas: list[Delta] = []
        for i, token_id in enumerate(completion.token_ids):
            is_forbidden = bool(seq.sampling.limits) and not is_allowed(seq, token_id)
            drawn: SampledToken | NoOtherToken
            if has_no_token or token_id in banned or (banned and is_forbidden):
                drawn = NoOtherToken()
            elif is_forbidden:
                raise seq.sampling.no_token_left()
            else:
                drawn = SampledToken(token_id, self._logprobs(seq, completion.logprobs, i, banned))
            deltas += self._runtime.processor.advance(seq, drawn)
            banned = frozenset()
            if seq.finish_reason is not None:
                break
        self._put(deltas)

    def _read_prompt(self, seq: Sequence, output: RequestOutput) -> None:
        if seq.is_first and not seq.num_output_tokens and not seq.was_rewound:
            seq.group.num_cached_tokens += output.num_cached_tokens or 0
        if seq.needs_prompt_logprobs and output.prompt_logprobs:
            flat, top = output.prompt_logprobs, seq.group.request.num_prompt_logprobs or 0
            read = [read_logprobs(flat, i, top, frozenset()) for i in range(1, len(flat))]
            ranks = (flat.ranks[start] for start in flat.start_indices[1:])
            seq.prompt_logprobs += [one._replace(rank=rank) for one, rank in zip(read, ranks, strict=True)]

    def _logprobs(self, seq: Sequence, flat: Any, at: int, banned: frozenset[int]) -> Logprobs | None:
        if not flat:
            return None
        params = seq.sampling.params
        return read_logprobs(flat, at, params.logprobs or 0, banned, params.logprob_token_ids)

    def _put(self, deltas: list[Delta]) -> None:
        if self._group.has_choice:
            deltas = [delta for _, delta in hold_candidates((self._group, delta) for delta in deltas)]
        self._tracked.usage = self._group.usage
        for delta in deltas:
            self.stream.put(delta)
        self.stream.feed()
