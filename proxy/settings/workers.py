"""The options of the processes that serve."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class WorkerOptions(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    workers: Annotated[int, Field(ge=1)] = 1
    """Processes that serve the same port, one for each core (upstreams, replay, echo). --hook-workers and the
    limits of connections are for each of them"""
