"""Any OpenAI-compatible server (vLLM, SGLang, TensorRT-LLM, llama.cpp, OpenAI) as an engine.

`request` writes the request's body. `stream` and `tokens` read the answer.
"""
