"""Engines whose answers come from elsewhere: another server, over HTTP and server-sent events, in any of
several APIs; a pool of servers; a recording (`replay`); the prompt itself (`echo`); or no engine (`none`).

`engine` keeps the connections, to the URL that `address` reads. `body`, `sse` and `events` read an answer,
within the bounds of `limits`. `errors` finds whether the caller or the upstream is at fault, and `refusal`
writes the error in Weir's words.

An API is a subclass of `engine.UpstreamEngine`, which makes a `call.Call` of each request.
"""
