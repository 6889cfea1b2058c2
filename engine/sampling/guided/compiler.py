"""Makes grammars ready to be followed: tries them in a process of their own, compiles them and keeps them."""

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
from queue import LifoQueue

from llguidance import LLMatcher, LLTokenizer

from engine.sampling.guided import check
from engine.sampling.guided.grammar import Grammar
from engine.text.tokenizer import LocalTokenizer

NUM_COMPILERS = 2
"""Grammars that are compiled at the same time, each in a thread and a process."""
MAX_COMPILED = 64
"""Grammars that are kept: those used last. A common one takes some hundred kilobytes."""

CREDIT = 0.5
TOKEN_SECONDS = 0.003
"""Seconds of one core that following a grammar may take: `CREDIT` once, and `TOKEN_SECONDS` for each token.
The mean need is a hundredth of that."""


class GrammarError(ValueError):
    """The grammar is not valid, or is too much for the service. The message is for the caller."""


@dataclass(eq=False, slots=True)
class CompiledGrammar:
    """A grammar that is ready, and the time spent following it so far. The whole batch waits meanwhile."""

    source: Grammar
    """The whole grammar."""
    matcher: LLMatcher
    """At the beginning of the grammar. Copy it; do not move it."""
    seconds: float = 0.0
    num_tokens: int = 0

    def check(self) -> None:
        """Raises `GrammarError` if it has taken too long."""
        # An ambiguous grammar is slow where it is ambiguous, which cannot be known beforehand.
        if self.seconds > CREDIT + TOKEN_SECONDS * self.num_tokens:
            raise GrammarError("it takes too long to follow")

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Counts the time of its body as time spent following the grammar."""
        begun = time.thread_time()
        yield
        self.seconds += time.thread_time() - begun


class GrammarCompiler:
    """Compiles grammars for one model. `compile` may take seconds, and several threads may call it."""

    def __init__(self, tokenizer: LocalTokenizer, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        """`vocab_size`: of the logits. A model without an end-of-sequence token can follow no grammar."""
        self._local, self._vocab_size, self._eos_token_ids = tokenizer, vocab_size, eos_token_ids
        self._checkers = [Checker(vocab_size) for _ in range(NUM_COMPILERS)]
        self._idle_checkers: LifoQueue[Checker] = LifoQueue()
        """The last one used goes first: one process is enough until two grammars come at once."""
        for checker in self._checkers:
            self._idle_checkers.put(checker)
        self._compiled: OrderedDict[Grammar, CompiledGrammar | GrammarError] = OrderedDict()
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()

    @property
    def tokenizer(self) -> LLTokenizer:
        """Made at the first use, which takes a second for 150,000 tokens. Raises `GrammarError`."""
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

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises `GrammarError`."""
        compiled = self._find(grammar)
        if compiled is None:
            try:
                compiled = self._make(grammar)
            except GrammarError as error:
                compiled = error
            self._keep(grammar, compiled)
        if isinstance(compiled, GrammarError):
            raise GrammarError(str(compiled))
        compiled.check()
        return compiled

    def close(self) -> None:
        for checker in self._checkers:
            checker.close()

    def _find(self, grammar: Grammar) -> CompiledGrammar | GrammarError | None:
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
            return self._compiled.get(grammar)

    def _keep(self, grammar: Grammar, compiled: CompiledGrammar | GrammarError) -> None:
        with self._lock:
            self._compiled[grammar] = compiled
            while len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)

    def _make(self, grammar: Grammar) -> CompiledGrammar:
        grammar = grammar.whole()
        checker = self._idle_checkers.get()
        try:
            converted = checker.check(grammar)
        finally:
            self._idle_checkers.put(checker)
        matcher = LLMatcher(self.tokenizer, converted, log_level=0, limits=check.limits())
        compiled = CompiledGrammar(grammar, matcher)
        with compiled.timed():
            first = matcher.deep_copy()
            first.compute_bitmask()
        for one in (matcher, first):
            if one.is_error():
                raise GrammarError(check.readable(one.get_error()))
        return compiled


class Checker:
    """Runs `engine.sampling.guided.check` in a process, starts it when needed, and again if a grammar has
    ended it.

    One thread at a time uses it.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._process: subprocess.Popen[bytes] | None = None

    def check(self, grammar: Grammar) -> str:
        """The `whole` grammar in the library's own form. Raises `GrammarError`."""
        kind, text, whitespace, _ = grammar
        job = json.dumps({"kind": kind, "text": text, "whitespace": whitespace}).encode() + b"\n"
        answer = self._ask(job)
        if not answer:
            raise GrammarError("it takes too long, or too much memory, to compile")
        outcome = json.loads(answer)
        if "error" in outcome:
            raise GrammarError(outcome["error"])
        converted: str = outcome["grammar"]
        return converted

    def close(self) -> None:
        """End the process, even in the middle of a job. Another `check` starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _ask(self, job: bytes) -> bytes:
        """Send a line and read one. Empty if the process ended instead."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(job)
            process.stdin.flush()
            answer = process.stdout.readline()
        except (OSError, ValueError):  # the process ended, or was closed meanwhile
            answer = b""
        if not answer:
            self.close()
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, check.__file__, str(self._vocab_size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt of the service does not reach it
        )
        weakref.finalize(self, _end, process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes the pipes, and waits for the end
        process.kill()
