"""`weir watermark detect` prints the figures of a text, or says why it cannot look for a watermark."""

import io
from pathlib import Path

import pytest

from engine.protocol.demo import MODEL_DIR
from engine.sampling.logits_processors.builtin.watermark import GreenList
from engine.text.tokenizer import LocalTokenizer
from proxy.cli.cli import main

TEXT = "Our shop ships to every country. Where is my order 48213? It left on Monday."


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_WATERMARK_KEY", raising=False)


def detect(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    main(["watermark", "detect", *arguments])
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_the_figures_of_a_file_and_of_standard_input_agree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text(TEXT)
    of_file = detect(capsys, str(tmp_path / "text"), "--key", "hush", "--gamma", "0.5")
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    assert detect(capsys, "--key", "hush", "--gamma", "0.5") == of_file
    token_ids = LocalTokenizer.load(str(MODEL_DIR)).encode(TEXT, add_special_tokens=False)
    found = GreenList("hush", 0.5).detect(token_ids)
    scored, green, z_score, p_value = of_file
    assert scored[-1] == str(found.num_scored)
    assert green[1] == str(found.num_green)
    assert green[-1] == "50%)"
    assert z_score == ["z-score", f"{found.z_score:.2f}"]
    assert p_value == ["p-value", f"{found.p_value:.2g}"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["README.md"], "a watermark needs a key, which nobody else should know"),
        (["no-such-file", "--key", "hush"], "No such file or directory"),
        (["README.md", "--key", "hush", "--gamma", "1"], "gamma"),
        (["README.md", "--key", "hush", "--model", "./no-such-model"], "no-such-model"),
    ],
)
def test_what_cannot_be_used_is_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["watermark", "detect", *arguments])
    said = capsys.readouterr().err
    assert said.startswith("weir watermark detect: ")
    assert reason in said
