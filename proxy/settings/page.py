"""The option of the page."""

from pydantic import BaseModel, ConfigDict


class PageOptions(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    page: bool = True
    """Serve the page at /: a chat that shows what hooks decide, and a dashboard. It needs no key to load, and
    asks for data with its visitor's keys. With --admin-port, that port has the operator's views of it"""
