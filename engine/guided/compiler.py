"""Grammars made ready to be followed: tried in a process of their own, compiled, and kept."""

import json
import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llguidance import LLMatcher, LLTokenizer

from engine.guided import check
from engine.guided.grammar import Grammar
from engine.text.tokenizer import LocalTokenizer

MAX_COMPILED = 64
"""Grammars that are kept, the latest used. A common one has some hundred kilobytes."""


CREDIT = 0.5
TOKEN_SECONDS = 0.003
"""Of a core: what following a grammar may take, and for each token; in the mean it takes a hundredth."""


class GrammarError(ValueError):
    """There is no such grammar, or it is too much. The message is for whoever asked for it."""


@dataclass(eq=False, slots=True)
class Compiled:
    """A grammar that is ready, and what it has taken to follow it so far: the whole batch waits for that."""

    matcher: LLMatcher
    """At the grammar's beginning: to be copied, and left there."""
    seconds: float = 0.0
    num_tokens: int = 0

    def check(self) -> None:
        """Raises `GrammarError` if it has taken too long."""
        # An ambiguous grammar is slow where it is ambiguous, which nobody can tell beforehand.
        if self.seconds > CREDIT + TOKEN_SECONDS * self.num_tokens:
            raise GrammarError("it takes too long to follow")

    @contextmanager
    def following(self) -> Iterator[None]:
        """Around what follows it."""
        begun = time.thread_time()
        yield
        self.seconds += time.thread_time() - begun


class GrammarCompiler:
    """A model's. `compile` may take seconds, and be called from several threads."""

    def __init__(self, tokenizer: LocalTokenizer, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        """`vocab_size`: of the logits. Without an end of sequence nothing can be compiled."""
        self._local, self._vocab_size, self._eos_token_ids = tokenizer, vocab_size, eos_token_ids
        self._checker = Checker(vocab_size)
        self._compiled: OrderedDict[Grammar, Compiled | GrammarError] = OrderedDict()
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()

    @property
    def tokenizer(self) -> LLTokenizer:
        """Made when it is first asked for: that takes a second for 150,000 tokens. Raises `GrammarError`."""
        with self._lock:
            if self._tokenizer is None:
                if not self._eos_token_ids:
                    raise GrammarError("this model has no end-of-sequence token, which is needed for this")
                try:
                    ids = list(self._eos_token_ids)
                    self._tokenizer = LLTokenizer(self._local.fast.to_str(), self._vocab_size, ids)
                except ValueError as error:
                    raise GrammarError("this model's tokenizer is of a kind that cannot be guided") from error
            return self._tokenizer

    def has(self, grammar: Grammar) -> bool:
        """Whether `compile` would take no time."""
        return grammar in self._compiled

    def compile(self, grammar: Grammar) -> Compiled:
        """Raises `GrammarError`."""
        found = self._find(grammar)
        if found is None:
            try:
                found = self._make(grammar)
            except GrammarError as error:
                found = error
            self._keep(grammar, found)
        if isinstance(found, GrammarError):
            raise GrammarError(str(found))
        found.check()
        return found

    def close(self) -> None:
        self._checker.close()

    def _find(self, grammar: Grammar) -> Compiled | GrammarError | None:
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
            return self._compiled.get(grammar)

    def _keep(self, grammar: Grammar, made: Compiled | GrammarError) -> None:
        with self._lock:
            self._compiled[grammar] = made
            while len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)

    def _make(self, grammar: Grammar) -> Compiled:
        known = self._checker.check(grammar)
        matcher = LLMatcher(self.tokenizer, known, log_level=0, limits=check.limits())
        compiled = Compiled(matcher)
        with compiled.following():
            first = matcher.deep_copy()
            first.compute_bitmask()
        for one in (matcher, first):
            if one.is_error():
                raise GrammarError(check.readable(one.get_error()))
        return compiled


class Checker:
    """Keeps a process that runs `engine.guided.check`: started when needed, again when a grammar ended it."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def check(self, grammar: Grammar) -> str:
        """The grammar in the library's own form. Raises `GrammarError`."""
        job = json.dumps(grammar._asdict()).encode() + b"\n"
        with self._lock:
            answer = self._ask(job)
        if not answer:
            raise GrammarError("it takes too long, or too much memory, to compile")
        outcome = json.loads(answer)
        if "error" in outcome:
            raise GrammarError(outcome["error"])
        known: str = outcome["grammar"]
        return known

    def close(self) -> None:
        """End the process, whatever it does. Another `check` starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _ask(self, job: bytes) -> bytes:
        """One line for another; none if the process ended instead."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(job)
            process.stdin.flush()
            answer = process.stdout.readline()
        except (OSError, ValueError):  # it has ended, or was closed meanwhile
            answer = b""
        if not answer:
            self.close()
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", check.__file__, str(self._vocab_size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what interrupts the service is not for it
        )
        weakref.finalize(self, _end, process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
