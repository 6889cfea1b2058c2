"""`EngineCore`: one step of the in-process engine; beam search, `best_of` and drafts over its sequences."""
