"""The options of the operator's API, and of the page."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from proxy.settings.values import Keys


class AdminOptions(BaseModel):
    model_config = ConfigDict(defer_build=True)

    admin_key: Keys = []
    """Key of the operator, for /admin and /metrics; several may be given. Better set as WEIR_ADMIN_KEY"""
    admin_port: Annotated[int | None, Field(ge=0, le=65535)] = None
    """Port of its own for /admin, /metrics, /health, /ready and the operator's page; 0 takes a free one. The
    other port has neither /admin nor /metrics then. /metrics needs no key here"""
    admin_host: str = "127.0.0.1"
    """Address to listen on for --admin-port"""
    admin_ssl: bool = True
    """With ssl_certfile, --admin-port speaks TLS too, and wants the same certificates of its clients. False:
    it speaks plain HTTP, as probes and Prometheus do by default"""
    page: bool = True
    """Serve the page at /: a chat that shows what hooks decide, and a dashboard. It needs no key to load, and
    asks for data with its visitor's keys. With --admin-port, that port has the operator's views of it"""
