"""The names that other servers and gateways have for what an option here does. They are too unlike the
option's name to be found by their letters."""

from collections.abc import Collection

_LIMITS = "; a key and a policy have it as {} under limits"
_TOP = "; there are no groups here: the options are at the top of the file"
_FALLBACKS = "; no other model answers in a model's place. Several servers under upstream may have one model"
_MONEY = "; there are no budgets in money: limits of a key or a policy have tokens_per_month"

_OPTIONS = {
    **dict.fromkeys(("tls_key", "tls_keyfile", "tls_key_file", "ssl_key", "keyfile"), ("ssl_keyfile",)),
    **dict.fromkeys(("tls_cert", "tls_certfile", "tls_cert_file", "ssl_cert", "certfile"), ("ssl_certfile",)),
    **dict.fromkeys(("tls_ca", "tls_ca_file", "tls_client_ca", "ssl_ca"), ("ssl_ca_certs",)),
    # LiteLLM's
    **dict.fromkeys(("api_base", "base_url"), ("upstream", "url")),
    "model_list": ("models",),
    **dict.fromkeys(("model_name", "model_group_alias"), ("served_model_name", "aliases")),
    **dict.fromkeys(("guardrails", "callbacks"), ("hooks", "policy")),
    "guardrail": ("hooks", "path"),
    "guardrail_name": ("hooks", "name"),
    "master_key": ("admin_key",),
    "virtual_keys": ("keys",),
    **dict.fromkeys(("user_id", "team_id", "team"), ("tenant",)),
    "num_workers": ("workers",),
    "num_retries": ("upstream_retries",),
    **dict.fromkeys(("timeout", "request_timeout", "stream_timeout"), ("upstream_timeout",)),
    "routing_strategy": ("routing",),
    "database_url": ("store",),
    **dict.fromkeys(("redis_host", "redis_url"), ("state",)),
    **dict.fromkeys(("rpm", "rpm_limit"), ("requests_per_minute",)),
    **dict.fromkeys(("tpm", "tpm_limit"), ("tokens_per_minute",)),
    "max_parallel_requests": ("max_connections", "upstream_max_connections", "concurrent_requests"),
}
"""The options for each such name, of which each place has one at most."""

_WORDS = {
    **dict.fromkeys(("general_settings", "litellm_settings", "router_settings"), _TOP),
    "litellm_params": "; a model's options are right below its name in models, and a hook's in args",
    **dict.fromkeys(("fallbacks", "default_fallbacks", "context_window_fallbacks"), _FALLBACKS),
    **dict.fromkeys(("max_budget", "soft_budget", "budget_duration"), _MONEY),
    **dict.fromkeys(("rpm", "rpm_limit"), _LIMITS.format("requests_per_minute")),
    **dict.fromkeys(("tpm", "tpm_limit"), _LIMITS.format("tokens_per_minute")),
    "max_parallel_requests": _LIMITS.format("concurrent_requests"),
    "default_on": "; every hook runs for every request of its policy",
    "drop_params": "; fields without effect are left out, and X-Weir-Ignored-Fields names them",
}
"""The end of the message where the place has none of these options."""

_KEY_NAMES = ("key", "api_key", "token", "value")


def option_here(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown option. Empty if no other server has one of this name.
    `known`: the options of its place, or those of the command line if `name` is one with dashes."""
    is_flag, plain = name.startswith("--"), _plain(name)
    places = {_plain(one): one for one in known}
    if plain in _KEY_NAMES and "hash" in places:
        return "; did you mean 'hash'? `weir config key` prints a new key and its hash"
    options = _OPTIONS.get(plain, ())
    here = [places[one] for one in options if one in places]
    if not here and plain in _WORDS:
        return _WORDS[plain]
    if not here and not is_flag:
        here = [*options]  # it is in another place of the file
    return f"; did you mean {here[0]!r}?" if here else ""


def _plain(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")
