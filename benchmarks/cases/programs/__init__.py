"""Programs that find secrets or personal data with a peer's library, run by the Python that has it."""
