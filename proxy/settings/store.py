"""The options of the store."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from proxy.settings.database_url import check_url

SCHEMES = ("sqlite:///", "postgresql://")


class StoreOptions(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    store: SecretStr | None = None
    """URL of what the operator keeps (keys, changes, decisions): sqlite:///FILE or postgresql://HOST/DATABASE.
    By default it is weir.sqlite in the working folder if there is an admin key, and else ends with the
    server"""
    store_timeout: Annotated[float, Field(gt=0)] = 5.0
    """Seconds in which the store must answer"""

    @field_validator("store")
    @classmethod
    def _store_can_be_used(cls, url: SecretStr | None) -> SecretStr | None:
        return check_url(url, SCHEMES)
