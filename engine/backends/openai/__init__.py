"""Any OpenAI-compatible server (vLLM, SGLang, TensorRT-LLM, llama.cpp, OpenAI) as an engine.

`engine` keeps the connection, and `request` writes the request's body. `sse`, `stream` and `tokens` read the
answer. `errors` tells whether the caller or the upstream is at fault.
"""
