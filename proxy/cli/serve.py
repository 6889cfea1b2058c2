"""`weir serve`: start the service, print a greeting, and serve until a signal."""

import logging

from proxy.deployment.checks.directory import check_directory
from proxy.deployment.checks.idle import idle_faults
from proxy.deployment.start_errors import START_ERRORS, start_error
from proxy.http.door import needs_keys
from proxy.service.reload import Read
from proxy.settings.serve import ServeSettings
from proxy.telemetry.logs import flush_log, log_to_stderr
from proxy.workers.event_loop import run
from proxy.workers.run import ENGINE_FAILED, drained, freeze_objects, running, until_over
from proxy.workers.signals import Signals, leave_within

logger = logging.getLogger("weir.proxy")

_NAMELESS = (
    "It did not say which models it has, so each request names one in its field model,"
    " or --upstream-model names one for all."
)


def serve(settings: ServeSettings, read: Read) -> None:
    """Serve until SIGTERM or SIGINT. Exits with 1 and a reason if the service cannot start. `read`: reads the
    settings again, for a reload."""
    log_to_stderr(settings.log_level, settings.log_format)
    try:
        check_directory(settings)
        for fault in idle_faults(settings):
            logger.warning("%s", fault)
        run((_serve if settings.workers == 1 else _supervise)(settings, read))
    except START_ERRORS as error:
        raise SystemExit(f"weir serve: {start_error(error)}") from error
    finally:
        flush_log()  # a reason to exit is the last line


async def _serve(settings: ServeSettings, read: Read) -> None:
    signals = Signals()
    async with running(settings) as (server, url):
        reloads = server.service.reloads
        reloads.read = read
        signalled = signals.obey(settings.drain_delay + server.ending.leave, reloads.signal)
        try:
            deployment = server.service.deployment
            model, names = deployment.default_name, deployment.names_in_words
            _greet(url, model, names, settings, has_keys=needs_keys(server.service))
            has_failed = await until_over(signalled, lambda: server.service.deployment.check_alive())
            has_failed = has_failed or await drained(server)
        finally:
            if not signalled.is_set():
                leave_within(server.ending.leave, status=1)
    if has_failed:
        raise SystemExit(f"weir serve: {ENGINE_FAILED}")


async def _supervise(settings: ServeSettings, read: Read) -> None:
    from proxy.workers.supervisor import supervised  # which one process alone does not need

    signals = Signals()
    freeze_objects()
    async with supervised(settings, read) as (supervisor, url):
        signalled = signals.obey(settings.drain_delay + supervisor.ending.leave, supervisor.reload_by_signal)
        _greet(url, supervisor.model, supervisor.names, settings, has_keys=supervisor.needs_keys)
        await supervisor.wait(signalled)
        await supervisor.drain()


def _greet(url: str, model: str, names: str, settings: ServeSettings, *, has_keys: bool) -> None:
    guarded = (
        _count(len(settings.policies), "policy", "policies")
        if settings.policies
        else (_count(len(settings.hook_specs), "hook", "hooks"))
    )
    processes = f" in {settings.workers} processes" if settings.workers > 1 else ""
    if settings.base_model.engine == "none":
        flush_log()
        apis = ", ".join(sorted(settings.guard_api_names)) or "no guard API (--guard-api)"
        print(f"Weir judges texts at {url}{processes}, with {guarded}: {apis}.", flush=True)
        return
    flush_log()
    if not model:
        print(f"Weir serves an upstream at {url}/v1{processes}, with {guarded}. {_NAMELESS}", flush=True)
        return
    key = '    -H "Authorization: Bearer $WEIR_API_KEY" \\\n' if has_keys else ""  # the reader's own
    page = f"Open {url}/ in a browser, or try" if settings.page else "Try"
    print(
        f"Weir serves {names} at {url}/v1{processes}, with {guarded}. {page}:\n\n"
        f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n{key}"
        f'    -d \'{{"model": "{model}", "stream": true, '
        '"messages": [{"role": "user", "content": "Hello!"}]}\'\n',
        flush=True,
    )


def _count(number: int, one: str, several: str) -> str:
    return f"{number or 'no'} {one if number == 1 else several}"
