"""The guards that ship. They use public names only: the exports of `hooks`, the tools of
`hooks.detect` and `hooks.json`, and the values of `engine.protocol` and `engine.protocol.guard_models`.

Most guards are a detector that `SpanGuard` turns into a guard; copy one to begin your own. A guard's short
name can replace its import path wherever a hook is named: `--hook phrases`.
"""
