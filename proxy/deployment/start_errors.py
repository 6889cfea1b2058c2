"""Why a service cannot start, or not with a new configuration."""

from engine.protocol import EngineError
from engine.protocol.parts import how_to_install
from hooks.loading.loader import HookLoadError
from proxy.storage.query import StateError

START_ERRORS = (ImportError, EngineError, HookLoadError, StateError, ValueError, OSError)


def start_error(error: BaseException) -> str:
    """The reason, for whoever started the service."""
    if isinstance(error, ImportError) and error.name:
        return f"{error}; the in-process engine needs it: {how_to_install('engine')}"
    if isinstance(error, StateError):
        return f"the shared state, or the store, cannot be used: {error}"
    return str(error)
