"""One line of the log for each decision of a hook (`--decision-log`)."""

import logging

from proxy.storage.records import DecisionRecord
from proxy.telemetry.logs import log_fields

logger = logging.getLogger("weir.decisions")


def log_decision(record: DecisionRecord) -> None:
    """Logs the decision, never the withheld text. `answer_id`: the id in the answer's JSON."""
    fields = record.json()
    del fields["time"]
    fields["answer_id"] = fields.pop("request_id")
    log_fields(logger, "decided", fields)
