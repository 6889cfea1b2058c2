"""`weir probe`: trains a probe of a model on labelled exchanges, calibrates it and reports what it finds."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from engine.protocol.demo import MODEL_DIR, PROBES
from engine.protocol.probe_info import ProbeInfo, ProbeKind, Smoothing
from hooks.api.extras import from_extra
from proxy.cli.leaving import leaving

if TYPE_CHECKING:
    from torch import Tensor

    from proxy.cli.probes.exchanges import LabelledText
    from proxy.cli.probes.measuring import Report, RunningScores

FORMAT = "labelled exchanges, in a format that weir eval-guard knows"


def add_probe_arguments(parser: argparse.ArgumentParser) -> None:
    """train a probe of a model, calibrate it, and report what it finds"""
    commands = parser.add_subparsers(required=True, metavar="{train,calibrate,report}")
    trains = _command(commands, "train", "fit a probe to labelled exchanges", train)
    trains.add_argument(
        "--out", type=Path, required=True, metavar="PROBE", help="file to write (safetensors)"
    )
    trains.add_argument("--name", help="the probe's name (default: the name of the file)")
    trains.add_argument("--label", help="what it detects (default: the probe's name)")
    trains.add_argument("--kind", choices=get_args(ProbeKind), default="linear", help="(default: linear)")
    trains.add_argument(
        "--layers",
        help="layers to read, as 12,24 or model.layers.12,model.norm (default: the middle one and the last)",
    )
    trains.add_argument(
        "--span", type=_span, default=8, help="tokens that a running score spans (%(default)s)"
    )
    trains.add_argument("--seed", type=_seed, default=0, help="(%(default)s)")
    calibrates = _command(commands, "calibrate", "set the threshold for a rate of false positives", calibrate)
    calibrates.add_argument("--probe", type=Path, required=True, help="the probe's file, which is changed")
    calibrates.add_argument(
        "--false-positive-rate",
        type=_share,
        default=0.01,
        help="most harmless texts that the probe may find, as a share (%(default)s)",
    )
    calibrates.add_argument("--smoothing", choices=get_args(Smoothing), default="rolling_mean")
    calibrates.add_argument(
        "--span", type=_span, default=8, help="tokens that a running score spans (%(default)s)"
    )
    reports = _command(commands, "report", "say what a calibrated probe finds in other exchanges", report_on)
    reports.add_argument(
        "--probe",
        type=lambda text: Path(PROBES.get(text, text)),
        required=True,
        help="the probe's file, or weir-demo-probe",
    )
    reports.add_argument("--json", action="store_true", help="print JSON")


def _command(commands: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("exchanges", type=Path, metavar="EXCHANGES", help=FORMAT)
    parser.add_argument(
        "--model", default=str(MODEL_DIR), help="folder or hub name (default: the one that ships)"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--of",
        choices=("reply", "prompt"),
        default="reply",
        help="the half of an exchange that the probe reads, and whose label counts (default: reply)",
    )
    parser.set_defaults(run=lambda options: _run(name, run, options))
    return parser


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}")
        return int(text)

    return read


_span = _number(1, 1_000_000)
_seed = _number(0, 2**63 - 1)


def _share(text: str) -> float:
    if not 0 <= (value := float(text)) < 1:
        raise argparse.ArgumentTypeError("must be from 0 up to 1")
    return value


def _run(name: str, run: Any, options: argparse.Namespace) -> None:
    """Exits with 2 if a file, the model or the probe cannot be used."""
    command = f"weir probe {name}"
    with leaving(command, ImportError, OSError, ValueError):
        with from_extra("engine", "torch and transformers", needed_by=command):
            import torch  # noqa: F401 - the extra is looked for before a file is read
        run(options)


def train(options: argparse.Namespace) -> None:
    from engine.execution.probes.model_hash import model_hash
    from engine.execution.probes.probe_file import Probe, check_name, check_place
    from proxy.cli.probes.training import Replies, fit

    name = options.name or options.out.stem
    check_name(name)
    check_place(options.out)
    reader = _Reader(options)
    layers = reader.layers(options.layers)
    inputs = [*reader.inputs(layers)]
    tensors = fit(Replies(inputs, reader.labels), options.kind, span=options.span, seed=options.seed)
    info = ProbeInfo(name=name, kind=options.kind, labels=(options.label or name,))
    probe = Probe(info, layers, _model_name(options.model), model_hash(options.model), tensors)
    probe.save(options.out)
    print(f"{options.out}: a {options.kind} probe of {', '.join(layers)}, from {len(inputs)} exchanges")
    print(f"next: weir probe calibrate --probe {options.out} OTHER_EXCHANGES")


def _model_name(model: str) -> str:
    """A model's name for a probe's file, which may be passed on: without the folders of this machine."""
    if Path(model) == MODEL_DIR:
        return "weir-demo"
    return Path(model).resolve().name if Path(model).exists() else model


def calibrate(options: argparse.Namespace) -> None:
    from engine.execution.probes.probe_file import load_probe
    from proxy.cli.probes.measuring import calibrated, calibration

    probe = load_probe(options.probe)
    scored = _scored(options, options.smoothing, options.span)
    harmless = [one for one in scored if not one.label]
    rate = options.false_positive_rate
    measured = calibration(harmless, rate, options.smoothing, options.span)
    calibrated(probe, measured).save(options.probe)
    assert measured.false_positive_rate is not None
    assert measured.interval is not None
    low, high = measured.interval
    print(f"threshold            {measured.threshold:.4f} ({measured.smoothing} over {measured.span} tokens)")
    texts = f"{len(harmless)} harmless {_plural(options)}"
    print(f"false positives      {measured.false_positive_rate:.2%} of {texts}")
    print(f"95 % interval        {low:.2%} to {high:.2%}")
    if rate and high > 2 * rate:
        few = f"{len(harmless)} {_plural(options)} are few for a rate of {rate:.2%}"
        print(f"note: {few}; about {3 / rate:.0f} show it")


def _plural(options: argparse.Namespace) -> str:
    return "replies" if options.of == "reply" else "prompts"


def report_on(options: argparse.Namespace) -> None:
    from engine.execution.probes.probe_file import load_probe
    from proxy.cli.probes.measuring import report

    known = load_probe(options.probe).info.calibration
    if known is None:
        raise ValueError(f"{options.probe} is not calibrated: weir probe calibrate does that")
    found = report(_scored(options, known.smoothing, known.span), known.threshold)
    print(json.dumps(asdict(found)) if options.json else _table(found))


def _table(found: "Report") -> str:
    lines = [
        ("threshold", f"{found.threshold:.4f}"),
        ("found", f"{found.detected} of {found.detected.total}"),
        ("false positives", f"{found.false_positives} of {found.false_positives.total}"),
        ("tokens until found", "-" if found.median_tokens is None else f"{found.median_tokens} (median)"),
        ("AUROC", "-" if found.auroc is None else f"{found.auroc:.4f}"),
    ]
    return "\n".join(f"{name:<20} {value}" for name, value in lines)


def _scored(options: argparse.Namespace, smoothing: Smoothing, span: int) -> "list[RunningScores]":
    """The probe's running scores. Raises `ValueError` for a probe of another model."""
    from engine.execution.probes.model_hash import model_hash
    from engine.execution.probes.probe_file import load_probe
    from proxy.cli.probes.measuring import running_scores

    probe = load_probe(options.probe)
    if probe.model_hash != model_hash(options.model):
        raise ValueError(
            f"{options.probe} is a probe of another model ({probe.model}), not of {options.model}"
        )
    if len(probe.info.labels) > 1:
        raise ValueError(f"{options.probe} has several labels; these commands know probes with one")
    reader = _Reader(options)
    return [*running_scores(probe, reader.inputs(probe.layers), reader.labels, smoothing, span)]


class _Reader:
    """The exchanges of a command, read by its model."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Raises `ValueError` or `OSError` for a model or a file that cannot be used."""
        from engine.execution.model_runner import ModelRunner
        from engine.protocol.options import EngineConfig
        from engine.text.tokenizer import LocalTokenizer
        from proxy.cli.probes.exchanges import read_texts

        tokenizer = LocalTokenizer.load(options.model)
        config = EngineConfig(model=options.model, device=options.device, enforce_eager=True)
        self._runner = ModelRunner.load(config)
        limit = self._runner.max_model_len
        self._texts: Sequence[LabelledText] = read_texts(options.exchanges, options.of, tokenizer, limit)

    @property
    def labels(self) -> list[int]:
        return [int(text.is_unsafe) for text in self._texts]

    def layers(self, given: str | None) -> tuple[str, ...]:
        """The names of the layers that the option names. Raises `ValueError` for a layer named twice."""
        num_layers = len(self._runner.model.layers)
        named = given or f"{num_layers // 2},{num_layers - 1}"
        parts = [part.strip() for part in named.split(",")]
        names = tuple(f"model.layers.{part}" if part.isdecimal() else part for part in parts)
        if len({*names}) < len(names):
            raise ValueError("--layers names a layer twice")
        return names

    def inputs(self, layers: tuple[str, ...]) -> "Iterator[Tensor]":
        """The activations of each text's own tokens, `[tokens, inputs]`. A bar shows the progress."""
        from tqdm import tqdm

        from engine.execution.probes.activations import activations

        found = activations(self._runner, [text.token_ids for text in self._texts], layers)
        bar = tqdm(found, total=len(self._texts), unit="exchange", desc="reading", disable=None)
        for text, one in zip(self._texts, bar, strict=True):
            yield one[text.first :].clone()  # without what comes before it
