"""llama.cpp on a GGUF file, by its batches, without a server: one turn for each line of the standard input.

    .venv-llama/bin/python benchmarks/gguf/llama_turns.py FILE THREADS

A line is a JSON object: `prompts`, lists of token ids, and `num_tokens` to draw after each, greedily, all in
one batch a step. The answer is a line of JSON: `seconds`, and with `num_tokens` 0 also `logprobs` of the
tokens of the first prompt after its first token, in nats. It needs the package `llama-cpp-python`, and
nothing of Weir.

On a processor with AMX, its code for AVX-512 runs: version 0.3.36, built by gcc 12, ends by an illegal
instruction (`tilezero`) in its code for AMX.
"""

import ctypes
import json
import sys
import time
from pathlib import Path

import llama_cpp
import numpy as np

CONTEXT, MAX_STREAMS = 8192, 16


def main() -> None:
    path, threads = sys.argv[1], int(sys.argv[2])
    silent = llama_cpp.llama_log_callback(lambda *_: None)  # kept: llama.cpp calls it until the end
    llama_cpp.llama_log_set(silent, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    how = llama_cpp.llama_model_default_params()
    how.use_extra_bufts = "amx_tile" not in Path("/proc/cpuinfo").read_text()
    model = llama_cpp.llama_model_load_from_file(path.encode(), how)
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_seq_max = CONTEXT, CONTEXT, MAX_STREAMS
    settings.n_threads = settings.n_threads_batch = threads
    settings.kv_unified = True
    context = llama_cpp.llama_init_from_model(model, settings)
    num_words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    greedy = llama_cpp.llama_sampler_init_greedy()
    batch = llama_cpp.llama_batch_init(CONTEXT, 0, 1)

    def decode(entries: list[tuple[int, int, int, bool]]) -> None:
        """Each is a token's id, its place, its stream, and whether its logits are wanted."""
        batch.n_tokens = len(entries)
        for i, (token, place, stream, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.logits[i] = token, place, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, stream
        if llama_cpp.llama_decode(context, batch):
            raise SystemExit("llama.cpp could not decode a batch")

    print("ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        prompts, num_tokens = task["prompts"], task["num_tokens"]
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        began = time.perf_counter()
        lasts, entries = [], []
        for stream, prompt in enumerate(prompts):
            entries += [
                (token, place, stream, place == len(prompt) - 1 or not num_tokens)
                for place, token in enumerate(prompt)
            ]
            lasts.append(len(entries) - 1)
        decode(entries)
        places = [len(prompt) for prompt in prompts]
        for _ in range(num_tokens):
            tokens = [llama_cpp.llama_sampler_sample(greedy, context, last) for last in lasts]
            decode([(token, places[i], i, True) for i, token in enumerate(tokens)])
            places = [place + 1 for place in places]
            lasts = list(range(len(tokens)))
        answer: dict[str, object] = {"seconds": time.perf_counter() - began}
        if not num_tokens:
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(entries), num_words))
            logits = logits.astype(np.float64)
            logits -= logits.max(axis=1, keepdims=True)
            logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            answer["logprobs"] = [float(logprobs[i, t]) for i, t in enumerate(prompts[0][1:])]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
