"""Guided decoding: outputs that are of a form that their request asks for, whatever the model would say.

A request asks by a `Grammar` (`grammar`): a JSON schema, a regular expression, a list of choices, a grammar,
or tools that must be called (`tool_calls`). The `GrammarCompiler` (`compiler`) makes it ready, outside of the
engine's thread; a `Guide` (`guide`) is one sequence's place in it; and a `GuidedMask` (`mask`) takes out the
tokens that cannot come, before each draw.

The library underneath is llguidance (MIT, 8 MB, no dependencies). Beside it xgrammar 0.2.8 was measured, on a
vocabulary of 150,000 tokens and a hundred random schemas: one took it 42 ms to compile in the mean and 400 at
most, here 0.6 and 3; a token's mask 0.09 ms in the mean and 26 at most, here 0.02 and 3. It also passes over
`multipleOf`, an `allOf` of several, and lengths beside a pattern or a format, and it brings triton along.
"""
