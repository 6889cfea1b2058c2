"""The report of usage as CSV (RFC 4180)."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def csv_of(names: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """A line of names, and one for each row. A row lacks none of them."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([row[name] for name in names] for row in rows)
    return text.getvalue()
