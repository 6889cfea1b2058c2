"""`weir watermark detect`: looks in a text for the watermark of a logits processor that ships."""

import argparse
import os
import sys
from pathlib import Path

from engine.protocol.demo import MODEL_DIR
from proxy.cli.leaving import leaving


def add_watermark_arguments(parser: argparse.ArgumentParser) -> None:
    """look for the watermark of a key in a text"""
    commands = parser.add_subparsers(required=True, metavar="{detect}")
    detects = commands.add_parser("detect", help="count the green tokens of a text")
    detects.add_argument("file", nargs="?", default="-", help="a text in UTF-8 (default: standard input)")
    detects.add_argument(
        "--key",
        default=os.environ.get("WEIR_WATERMARK_KEY"),
        help="the watermark's key; better set as WEIR_WATERMARK_KEY",
    )
    detects.add_argument(
        "--gamma", type=float, default=0.25, help="the watermark's share of green tokens (%(default)g)"
    )
    detects.add_argument(
        "--model",
        default=str(MODEL_DIR),
        help="the model that may have written the text; its tokenizer is used",
    )
    detects.set_defaults(run=detect)


def detect(options: argparse.Namespace) -> None:
    """Exits with 2 if the text, the key or the tokenizer cannot be used."""
    with leaving("weir watermark detect", ImportError, OSError, ValueError):
        # These modules import torch and transformers, which no other command needs.
        from engine.sampling.logits_processors.builtin.watermark import GreenList
        from engine.text.tokenizer import LocalTokenizer

        green = GreenList(options.key or "", options.gamma)
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
        token_ids = LocalTokenizer.load(options.model).encode(text, add_special_tokens=False)
    found = green.detect(token_ids)
    share = found.num_green / max(1, found.num_scored)
    print(f"tokens scored  {found.num_scored}")
    print(f"green          {found.num_green} ({share:.0%}; without a watermark about {found.gamma:.0%})")
    print(f"z-score        {found.z_score:.2f}")
    print(f"p-value        {found.p_value:.2g}")
