"""What detect-secrets finds: texts in, spans out. Run by the Python of its own environment.

Each text is a file of its own, because the search of single lines finds nearly anything.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from detect_secrets.core.scan import scan_file
from detect_secrets.settings import default_settings


def found(path: Path, text: str) -> list[tuple[int, int, str]]:
    path.write_text(text, newline="")
    lines = text.split("\n")
    spans: list[tuple[int, int, str]] = []
    for secret in scan_file(str(path)):
        begin = sum(len(line) + 1 for line in lines[: secret.line_number - 1])
        start = text.find(secret.secret_value or "", begin)
        if secret.secret_value and start >= 0:
            spans.append((start, start + len(secret.secret_value), secret.type))
    return spans


def main() -> None:
    texts = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as directory, default_settings():
        path = Path(directory, sys.argv[1])
        began = time.process_time()
        spans = [found(path, text) for text in texts]
        json.dump({"seconds": time.process_time() - began, "spans": spans}, sys.stdout)


main()
