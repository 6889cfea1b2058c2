"""vLLM's schedulers, with a prefix cache that shares prompts and no outputs (contract 6.4).

A cache hit could confirm a guess at text that hooks have withheld. vLLM finds a block by a hash of its tokens
and of all before it. Here a block with a token of an output gets a random hash, so that no request finds it.
"""

import os

from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request


def hide_output(request: Request) -> None:
    """Give the request's later blocks random hashes. Those of its prompt are computed already."""
    hashes_of = request._block_hasher
    if hashes_of is not None:
        request._block_hasher = lambda one: [BlockHash(os.urandom(len(h))) for h in hashes_of(one)]


class PromptSharingScheduler(Scheduler):
    def add_request(self, request: Request) -> None:
        hide_output(request)
        super().add_request(request)


class PromptSharingAsyncScheduler(AsyncScheduler):
    def add_request(self, request: Request) -> None:
        hide_output(request)
        super().add_request(request)


def path_of(*, is_async: bool) -> str:
    """The name of the scheduler's class, in vLLM's form."""
    cls = PromptSharingAsyncScheduler if is_async else PromptSharingScheduler
    return f"{cls.__module__}.{cls.__qualname__}"
