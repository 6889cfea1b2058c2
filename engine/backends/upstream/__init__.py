"""Another server as an engine, over HTTP and server-sent events, whatever its API.

`engine` keeps the connections. `address`, `body`, `sse` and `events` read what comes, within the bounds of
`limits`. `errors` tells whether the caller or the upstream is at fault. An API is a subclass of
`engine.UpstreamEngine`.
"""
