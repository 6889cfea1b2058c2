"""The options for keeping hooks' decisions: name, type, limits, default and meaning of each option."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class DecisionOptions(BaseModel):
    """Raises `ValueError` for a value out of range."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    keep_withheld_text: bool = False
    """Keep the withheld text with each decision, for operators who send the admin key"""
    read_recordings: bool = False
    """Let operators who send the admin key read recordings (--record) over /admin/recordings"""
    decisions_min_held: Annotated[float, Field(ge=0)] = 1.0
    """Seconds; of a shorter hold whose text was released untouched, only the time is counted"""
    decisions_max_age: Annotated[float, Field(gt=0)] = 30.0
    """Days after which decisions are removed from the store"""
    decisions_max_rows: Annotated[int, Field(ge=1)] = 1_000_000
    """Decisions that the store keeps; the oldest are removed"""
