"""Any server of the Messages API (Anthropic's, vLLM, another Weir) as an engine.

`request`, `turns` and `tools` write the request's body. `stream` and `blocks` read the answer. `signatures`
remembers what signs the reasoning of earlier answers.
"""
