"""Token classifiers as guards: what their heads say of a token, and when several tokens are an offence."""
