"""The protocols by which other gateways have the hooks judge texts. Each module maps one protocol's values to
a `Check`, and a `Judgement` to the protocol's answer. None decides anything, and none knows HTTP."""
