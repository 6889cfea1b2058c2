"""The short names of guards: those that ship, and those that packages add by an entry point to a class."""

from engine.protocol.parts import Kind

SHORT_NAMES = {
    "audit": "hooks.builtin.audit.Audit",
    "classifier": "hooks.builtin.classifier.Classifier",
    "json_schema": "hooks.builtin.json_schema.JsonSchema",
    "judge": "hooks.builtin.judge.Judge",
    "links": "hooks.builtin.links.Links",
    "media": "hooks.builtin.media.Media",
    "patterns": "hooks.builtin.patterns.Patterns",
    "phrases": "hooks.builtin.phrases.Phrases",
    "pii": "hooks.builtin.pii.Pii",
    "presidio": "hooks.builtin.presidio.Presidio",
    "probe": "hooks.builtin.probe.Probe",
    "prompt_leak": "hooks.builtin.prompt_leak.PromptLeak",
    "remote": "hooks.builtin.remote.Remote",
    "repetition": "hooks.builtin.repetition.Repetition",
    "secrets": "hooks.builtin.secrets.Secrets",
    "stream_guard": "hooks.builtin.stream_guard.StreamGuard",
    "tools": "hooks.builtin.tools.Tools",
    "wrap": "hooks.builtin.wrap.Wrap",
}

GUARDS = Kind("guard", "weir.hooks", SHORT_NAMES)
