"""Guided decoding: outputs that are of a form that their request asks for, whatever the model would say.

A request asks by a `Grammar` (`grammar`): a JSON schema, a regular expression, a list of choices, a grammar,
or tools that must be called (`tool_calls`). The `GrammarCompiler` (`compiler`) makes it ready, outside of the
engine's thread; a `Guide` (`guide`) is one sequence's place in it; and a `GuidedMask` (`mask`) takes out the
tokens that cannot come, before each draw.

The library underneath is llguidance (MIT, 8 MB, no dependencies). Beside it xgrammar was measured, on a
vocabulary of 150,000 tokens: a schema of eight fields took it 2 s to compile, here 1 ms, and a token's mask
4 ms in the mean, here 0.2 ms. It also refused some valid JSON, an escape in a string with a `maxLength`, and
it brings triton along.
"""
