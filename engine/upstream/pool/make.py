"""Makes the pool that a deployment's options ask for."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from engine.protocol import Tokenizer
from engine.upstream.address import UpstreamConfig
from engine.upstream.engine import UpstreamEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.options import PoolOptions
from engine.upstream.pool.replica import Replica
from engine.upstream.pool.routing import LeastOutstanding, PrefixAffinity


def pool_of(
    upstreams: Sequence[tuple[UpstreamConfig, UpstreamEngine]],
    options: PoolOptions,
    tokenizer: Tokenizer | None,
) -> PoolEngine:
    """The pool, not yet started. Raises `ValueError` as `PoolEngine`."""
    return PoolEngine(
        [_replica(upstream, engine, options) for upstream, engine in upstreams],
        routing=PrefixAffinity() if options.routing == "affinity" else LeastOutstanding(),
        first_token_timeout=options.upstream_first_token_timeout or None,
        retries=options.upstream_retries,
        health_interval=options.upstream_health_interval or None,
        tokenizer=tokenizer,
    )


def _replica(upstream: UpstreamConfig, engine: UpstreamEngine, options: PoolOptions) -> Replica:
    return Replica(
        upstream.name or urlsplit(engine.url).netloc,  # without the password
        engine,
        weight=upstream.weight,
        max_connections=upstream.max_connections or options.upstream_max_connections,
        serves_all=engine.model is not None,
        probe=engine.probe,
        problem=lambda: engine.health.problem,
        address=_address_of(engine.url),
    )


def _address_of(url: str) -> dict[str, str | int]:
    """The address of an upstream, by OpenTelemetry's names."""
    parts = urlsplit(url)
    return {"server.address": parts.hostname or "", **({"server.port": parts.port} if parts.port else {})}
