"""The guards that ship, written on what `hooks` exports and nothing else: copy one to begin yours.

`spans` makes a guard of a detector, and each guard is mainly its detector. A guard's short name stands for
its import path wherever a hook is named: `--hook phrases`.
"""

SHORT_NAMES = {
    "audit": "hooks.builtin.audit.Audit",
    "classifier": "hooks.builtin.classifier.Classifier",
    "json_schema": "hooks.builtin.json_schema.JsonSchema",
    "patterns": "hooks.builtin.patterns.Patterns",
    "phrases": "hooks.builtin.phrases.Phrases",
    "pii": "hooks.builtin.pii.Pii",
    "presidio": "hooks.builtin.presidio.Presidio",
    "prompt_leak": "hooks.builtin.prompt_leak.PromptLeak",
    "remote": "hooks.builtin.remote.Remote",
    "repetition": "hooks.builtin.repetition.Repetition",
    "secrets": "hooks.builtin.secrets.Secrets",
}
