"""Weir's guards as a library: for any stream of strings, in your own program, without a server.

    import weir

    guards = weir.Guards(["pii", "secrets"])            # once
    async for piece in guards.stream(model(question)):  # for each answer
        print(piece, end="")

All public names are here: those of this library, and those that a guard's author needs (`weir.Chunk`,
`weir.emit` and so on), which the package `hooks` has too. `weir.openai` and other modules of this package
guard the clients of other libraries.
"""

from pathlib import Path

try:
    import hooks
    from engine.protocol import Delta, Token, ToolCall
    from hooks import *  # noqa: F403 - the names of `hooks.__all__`
    from hooks.decisions.failure import HookError
    from hooks.loading.loader import HookLoadError, HookSpec
    from hooks.loading.options import PipelineOptions
    from weir.answer import Answer, RefusedError, Text
    from weir.guards import Guards, guard
    from weir.streams import GuardedIterator, GuardedStream
except ImportError as error:
    from importlib.util import find_spec

    for name in ("engine", "hooks"):
        spec, own = find_spec(name), Path(__file__).resolve().parents[1] / name / "__init__.py"
        found = None if spec is None else spec.origin
        if found is None or Path(found).resolve() != own:
            reason = f"is not Weir's here, but {found or 'another one'}, which comes first on sys.path"
            raise ImportError(f"the package {name!r} {reason}") from error
    raise

__all__ = [
    *hooks.__all__,
    "Answer",
    "Delta",
    "GuardedIterator",
    "GuardedStream",
    "Guards",
    "HookError",
    "HookLoadError",
    "HookSpec",
    "PipelineOptions",
    "RefusedError",
    "Text",
    "Token",
    "ToolCall",
    "guard",
]
