"""Any OpenAI-compatible server (vLLM, SGLang, TensorRT-LLM, llama.cpp, OpenAI) as an engine.

`request` writes the request's body. `stream`, `whole`, `tokens` and `prompt` read the answer.
"""
