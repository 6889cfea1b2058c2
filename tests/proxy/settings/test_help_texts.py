"""Help texts stand once, under the fields of options."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from proxy.settings.groups import help_texts


class Base(BaseModel):
    """No field's text."""

    count: int = 0
    """How many.
    Over two lines"""
    limit: ClassVar[int] = 3
    """No option"""
    silent: bool = False

    def method(self) -> None:
        """No field's text."""


class Derived(Base):
    name: str = ""
    """Its name"""
    count: int = 1
    """How many at least"""
    kind: Annotated[str, Field(description=f"One of {', '.join('ab')}")] = "a"


def test_an_option_has_the_docstring_under_its_field() -> None:
    assert help_texts(Base) == {"count": "How many.\nOver two lines"}


def test_options_of_a_base_class_have_theirs_and_a_text_may_be_computed() -> None:
    assert help_texts(Derived) == {"count": "How many at least", "name": "Its name", "kind": "One of a, b"}
