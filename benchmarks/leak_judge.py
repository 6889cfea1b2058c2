"""What a public judge of gateways says of Weir: `make bench NAME=leak_judge`.

    python -m benchmarks.leak_judge [--seeds 1,2] [--config FILE] [--reports DIR] [options of the judge]

`pii-leak-benchmark-v2` stands on both sides of Weir. As the client, it sends e-mail addresses, SSNs, card and
phone numbers in four places of a request. As the upstream, it returns the text that arrived there, and then a
value of its own, plain or percent-encoded, which it cuts at every place. Printed for each seed are

- cases: those that were judged, of all;
- leak, cut: the share of cases in which the upstream's value reached the client, sent in one piece or cut;
- DeltaFrag: the difference of the two;
- partial: the cases in which a part of that value reached the client;
- Fidelity: the share of the client's values that came back to it;
- request path: the kinds of values that the upstream got from the client's prompts.

Guards that redact have Fidelity 0: the client's values do not come back. Nothing else may be above 0. The
exit status is 1 if something leaked, or if a case could not be judged. Options that are not Weir's go to the
judge, such as `--oracle union-worst-case`.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.relay import free_port, running, weir

JUDGE = Path(".venv-leak-judge/bin/pii-leak-benchmark-v2")
GUARDS = Path(__file__).with_suffix(".yaml")
SEEDS = "1f,2e,3d,4c,5b"
COLUMNS = "seed                 cases   leak    cut  DeltaFrag  partial  Fidelity  request path"


def judged(seed: str, config: Path, reports: Path, options: list[str]) -> dict[str, Any]:
    """The judgement of a Weir of its own."""
    port = free_port()
    with running(weir(f"http://127.0.0.1:{port}/v1", "--config", str(config))) as (url, _):
        return judgement(seed, url, port, reports, options)


def judgement(seed: str, url: str, port: int, reports: Path, options: list[str]) -> dict[str, Any]:
    """Run the judge on the system at `url`, whose upstream's port is `port`. The summary; `partial` in it is
    that of partial emission."""
    command = [str(JUDGE), "--only", "weir", "--model", "m", "--seed", seed, "--out", str(reports)]
    command += ["--gateway-url", f"{url}/chat/completions", "--upstream-port", str(port)]
    command += ["--json-out", str(reports / "summary.json"), "--partial-emission"]
    command += ["--oracle", "exhaustive-2-part", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    summary: dict[str, Any] = json.loads((reports / "summary.json").read_text())["rows"][0]
    partial = json.loads((reports / "weir.partial-emission.json").read_text())
    return {**summary, "partial": partial["metrics"]}


def row(summary: dict[str, Any]) -> str:
    partial = summary["partial"]
    return (
        f"{summary['seed']:<18}{summary['cases_applicable']:5}/{summary['cases_attempted']}"
        f"{summary['leak_single_chunk']:7}{summary['leak_adversarial']:7}{summary['delta_frag']:11}"
        f"{partial['cases_partial_emission']:6}/{partial['cases_applicable']}{summary['fidelity_rate']:10}"
        f"  {', '.join(summary['request_path_leak']) or 'none'}"
    )


def is_clean(summary: dict[str, Any]) -> bool:
    """Whether every case was judged, and nothing leaked. A value that does not come back is no leak."""
    partial = summary["partial"]
    unsure = summary["inconclusive"] + partial["cases_inconclusive"]
    return summary["outcome"] != "fail" and not unsure and not partial["cases_partial_emission"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--seeds", default=SEEDS, help="each draws other values")
    parser.add_argument("--config", type=Path, default=GUARDS, help="a settings file of Weir with the guards")
    parser.add_argument("--reports", type=Path, help="a folder in which the judge's reports stay, by seed")
    options, of_judge = parser.parse_known_args()
    print(COLUMNS, flush=True)
    summaries: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds.split(","):
            reports = (options.reports or Path(folder)) / seed
            summaries.append(judged(seed, options.config, reports, of_judge))
            print(row(summaries[-1]), flush=True)
    raise SystemExit(not all(map(is_clean, summaries)))


if __name__ == "__main__":
    main()
