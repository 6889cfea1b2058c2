"""A decision as a Detection Finding of OCSF, the Open Cybersecurity Schema Framework.

The names and numbers are those of https://schema.ocsf.io/1.5.0/classes/detection_finding with the profile
`security_control`. `unmapped.weir` has the decision as Weir's own JSON has it.
"""

import uuid
from typing import Any, NamedTuple

from proxy import __version__
from proxy.storage.records import DecisionRecord

SCHEMA_VERSION = "1.5.0"

_SEVERITIES = {1: "Informational", 2: "Low", 3: "Medium", 4: "High"}
_ACTIONS = {1: "Allowed", 2: "Denied", 3: "Observed", 4: "Modified"}
_DISPOSITIONS = {2: "Blocked", 8: "Approved", 11: "Corrected", 15: "Detected", 27: "Error"}


class _Effect(NamedTuple):
    """Numbers of OCSF."""

    severity: int
    action: int
    disposition: int


_BLOCKED, _CORRECTED, _DETECTED = _Effect(3, 2, 2), _Effect(2, 4, 11), _Effect(1, 3, 15)
_EFFECTS = {
    **dict.fromkeys(("suppress", "terminate", "rewind", "refuse", "deny"), _BLOCKED),
    **dict.fromkeys(("redact", "rewrite", "rewrite_prompt"), _CORRECTED),
    **dict.fromkeys(("suspect", "taint", "ask", "judged"), _DETECTED),
    "restore": _Effect(1, 4, 11),
    "approve": _Effect(1, 1, 8),
    "limit": _Effect(1, 2, 2),
    "hold": _Effect(2, 2, 2),  # its stream ended early
    "error": _Effect(4, 2, 27),
}
"""By a decision's action."""


def detection_finding(record: DecisionRecord) -> dict[str, Any]:
    """The finding, with the withheld text only if the record has it."""
    effect, uid = _EFFECTS[record.action], str(uuid.uuid4())
    if record.mode == "shadow":
        effect = effect._replace(action=3, disposition=15)
    guard = record.hook or record.action
    user = {"uid": record.user, "name": record.key, "org": {"name": record.tenant}}
    return {
        "class_uid": 2004,
        "class_name": "Detection Finding",
        "category_uid": 2,
        "category_name": "Findings",
        "activity_id": 1,
        "activity_name": "Create",
        "type_uid": 200401,
        "type_name": "Detection Finding: Create",
        "time": int(record.time * 1000),
        "severity_id": effect.severity,
        "severity": _SEVERITIES[effect.severity],
        "status_id": 1,
        "status": "New",
        "action_id": effect.action,
        "action": _ACTIONS[effect.action],
        "disposition_id": effect.disposition,
        "disposition": _DISPOSITIONS[effect.disposition],
        "message": f"{guard}: {record.action}",
        "metadata": {
            "version": SCHEMA_VERSION,
            "profiles": ["security_control"],
            "product": {"name": "Weir", "vendor_name": "Weir", "version": __version__},
            "log_name": "decisions",
            "uid": uid,
            "correlation_uid": record.request_id,
            "tenant_uid": record.tenant,
        },
        "finding_info": {
            "uid": uid,
            "title": f"{guard}: {record.action}",
            "analytic": {"name": guard, "type_id": 99, "type": "Guard"},
            **({} if record.reason is None else {"types": [record.reason]}),
        },
        "policy": {
            "name": record.policy,
            "is_applied": record.mode == "enforce",
            **({} if record.revision is None else {"version": record.revision}),
        },
        "evidences": [{"user": {name: value for name, value in user.items() if value is not None}}],
        "resources": [{"name": record.model, "type": "model"}],
        "unmapped": {"weir": record.json(with_text=True)},
    }
