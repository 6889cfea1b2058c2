"""JSON in a stream: read, checked against a schema, and kept valid when a part is replaced."""
