"""The parts of the guard `links`: where addresses stand in a text, which may pass, and what they carry."""
