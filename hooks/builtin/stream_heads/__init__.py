"""Token classifiers as guards: the outputs of their heads, and the rule that makes an offence of tokens."""
