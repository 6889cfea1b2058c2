"""What is kept of hooks' decisions: name, type, limits, default and meaning of each option."""

from pydantic import BaseModel, ConfigDict


class DecisionOptions(BaseModel):
    """Raises `ValueError` for a value out of range."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    keep_withheld_text: bool = False
    """Keep the withheld text with each decision, for operators who send the admin key"""
