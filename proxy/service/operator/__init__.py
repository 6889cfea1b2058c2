"""The operator's side of a service: the keys that it made, and the decisions that it keeps."""
