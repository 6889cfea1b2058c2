"""The parts of the guard `links`: where addresses are in a text, which may pass, and what they carry."""
