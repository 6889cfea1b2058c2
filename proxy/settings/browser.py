"""The options for requests of web pages."""

from pydantic import BaseModel, ConfigDict

from proxy.settings.values import Names


class BrowserOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    allowed_hosts: Names = []
    """Host names that requests may be sent to, besides loopback names; * allows all. Without any, a server on
    a loopback address answers loopback names only, and a server on another address answers all"""
    cors_origins: Names = []
    """Origin whose pages may use the API in a browser, such as https://chat.example; repeat. * allows all"""
