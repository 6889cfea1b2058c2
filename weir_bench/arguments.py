"""The options of `weir bench`."""

import argparse
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from weir_bench.argument_types import count, json_object, list_of, natural, number, rate
from weir_bench.measure import METRICS
from weir_bench.plan import Plan, Target

EXAMPLES = """\
  weir bench --concurrency 1,8,32                       a closed loop: 1, then 8, then 32 open streams
  weir bench --request-rate 4 --duration 60             an open loop: Poisson arrivals, for a minute
  weir bench --target weir=http://127.0.0.1:8000 --target vllm=http://127.0.0.1:8001,Qwen/Qwen3-8B \\
             --repetitions 5 --html report.html         two servers side by side, in turns

Options that `vllm bench serve` also has mean the same. Exits with 1 if requests failed, with 130 at Ctrl-C.
"""


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    _add_servers(parser.add_argument_group("servers"))
    _add_load(parser.add_argument_group("load"))
    _add_requests(parser.add_argument_group("requests"))
    _add_reports(parser.add_argument_group("figures and reports"))


def _add_servers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--url",
        "--base-url",
        type=_url,
        default="http://127.0.0.1:8000/v1",
        help="base URL of the server; /v1 is added to a URL without a path (%(default)s)",
    )
    group.add_argument("--model", help="the model's name (default: the first that the server has)")
    group.add_argument(
        "--target",
        type=_target,
        action="append",
        metavar="NAME=URL[,MODEL]",
        help="a server and a name for it; repeat to compare others with the first, in turns",
    )
    group.add_argument(
        "--api-key",
        default=os.environ.get("OPENAI_API_KEY"),
        help="the servers' key (default: OPENAI_API_KEY)",
    )
    group.add_argument(
        "--endpoint",
        choices=("chat", "completions"),
        default=Plan.endpoint,
        help="the endpoint to measure (%(default)s)",
    )
    group.add_argument(
        "--timeout",
        type=number,
        default=Plan.timeout,
        metavar="S",
        help="seconds that one request may take (%(default)g)",
    )


def _add_load(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--concurrency",
        type=list_of(count),
        metavar="C,...",
        help="closed loop: streams to keep open; several values are measured one after the other (1)",
    )
    group.add_argument(
        "--request-rate",
        "--rate",
        type=list_of(rate),
        metavar="R,...",
        help="open loop: requests a second, at random times; inf sends all at once",
    )
    group.add_argument(
        "--burstiness",
        type=number,
        default=Plan.burstiness,
        help="open loop: arrivals are a Poisson process at 1, and come in bursts below 1 (%(default)g)",
    )
    group.add_argument(
        "--max-concurrency",
        type=count,
        metavar="C",
        help="open loop: requests that may run at a time; others wait",
    )
    group.add_argument(
        "--num-prompts",
        "--num-requests",
        type=count,
        metavar="N",
        help="requests of a run (default, in a closed loop: 4 a stream and at least 8)",
    )
    group.add_argument(
        "--duration", type=number, metavar="S", help="seconds after which a run sends no more requests"
    )
    group.add_argument(
        "--repetitions",
        type=count,
        default=Plan.repetitions,
        metavar="N",
        help="runs of each target and load (%(default)s)",
    )
    group.add_argument(
        "--num-warmups",
        type=natural,
        default=Plan.num_warmups,
        metavar="N",
        help="requests to each server, all at once, before the measured ones (%(default)s)",
    )
    group.add_argument(
        "--seed",
        type=int,
        help="seed of prompts and arrivals, which differ from run to run (default: a fresh one, printed)",
    )


def _add_requests(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prompt-words", type=count, default=18, metavar="N", help="words of a prompt (%(default)s)"
    )
    group.add_argument(
        "--shared-prefix-words",
        type=natural,
        default=0,
        metavar="N",
        help="words in front of these, the same in every prompt (%(default)s)",
    )
    group.add_argument("--same-prompt", action="store_true", help="send the same prompt every time")
    group.add_argument(
        "--dataset-path",
        type=Path,
        metavar="FILE",
        help="JSON lines, each with prompt or messages, and any other field of a request",
    )
    group.add_argument(
        "--max-tokens", type=count, default=128, metavar="N", help="tokens of an answer (%(default)s)"
    )
    group.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (%(default)g)"
    )
    group.add_argument(
        "--ignore-eos",
        action="store_true",
        help="make every answer as long as --max-tokens, if the server can",
    )
    group.add_argument(
        "--extra-body",
        "--extra",
        type=json_object,
        default={},
        metavar="JSON",
        help="JSON object with more fields for every request",
    )


def _add_reports(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--goodput",
        "--slo",
        type=_slo,
        action="extend",
        nargs="+",
        metavar="METRIC:MS",
        help="count requests within this many milliseconds; if a request has several values, the largest "
        f"counts. METRIC: {', '.join(METRICS)}",
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    group.add_argument(
        "--save-detailed", action="store_true", help="add the times of every request to --json"
    )
    group.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots to FILE")
    group.add_argument("--disable-tqdm", action="store_true", help="show no progress bar")


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError(f"{text!r} is no http or https URL")
    return text.rstrip("/") + ("" if parts.path.strip("/") else "/v1")


def _target(text: str) -> Target:
    found = re.fullmatch(r"([^=]+)=([^,]+)(?:,(.+))?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL or NAME=URL,MODEL")
    name, url, model = found.groups()
    return Target(name, _url(url), model)


def _slo(text: str) -> tuple[str, float]:
    metric, _, limit = text.partition(":")
    if metric not in METRICS:
        raise argparse.ArgumentTypeError(f"{text!r} is not METRIC:MS with one of {', '.join(METRICS)}")
    return metric, number(limit)
