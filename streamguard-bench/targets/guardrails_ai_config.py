"""The guard of guardrails-ai's server: a validator of one's own, registered as its documentation shows."""

import os
import re
import time
from typing import Any

from guardrails import Guard, OnFailAction
from guardrails.validators import FailResult, PassResult, ValidationResult, Validator, register_validator

FORM = re.compile(os.environ["FORM"])


@register_validator(name="streamguard/no-values", data_type="string")
class NoValues(Validator):  # type: ignore[misc]
    """Passes texts without a value, and has the text without it as the fix."""

    def _validate(self, value: str, metadata: dict[str, Any]) -> ValidationResult:
        match os.environ.get("FAILURE"):
            case "down":
                raise ConnectionError("the guard is down")
            case "slow":
                time.sleep(3600)
            case "wrong":
                return "fine"
        fixed = FORM.sub("<REDACTED>", value)
        if fixed == value:
            return PassResult()
        return FailResult(error_message="There is a value in the text.", fix_value=fixed)


guard = Guard(id="guard", name="guard").use(NoValues(on_fail=OnFailAction.FIX))
