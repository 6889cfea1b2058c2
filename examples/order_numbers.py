"""Withhold order numbers: `weir serve --hook examples/order_numbers.py:OrderNumbers`."""

from typing import Unpack

from hooks.detect.readings import VALUES, Reader
from hooks.detect.rules import Rule, RuleDetector
from hooks.detect.span_guard import SpanGuard, SpanOptions


class OrderNumbers(SpanGuard):
    """The detector says what is an order number. The reader also finds it written with escapes and in other
    characters, and the guard does the rest: what to hold, what to release, and what to say."""

    def __init__(self, **options: Unpack[SpanOptions]) -> None:
        number = Rule("order", r"ORD-\d{4}-\d{6}")
        super().__init__(Reader(RuleDetector([number]), VALUES), **options)
