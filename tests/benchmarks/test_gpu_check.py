"""The report of `make gpu-check` says what its parts have said, whatever happens to them."""

import sys
from pathlib import Path

import pytest

from benchmarks import gpu_check
from benchmarks.gpu_check import Part, report_of


def test_the_report_says_first_whether_all_is_right() -> None:
    right = [Part("Is it right?", "  triton: works\n", 0), Part("How fast is it?", "  1.2 ms\n", 0)]
    report = report_of(right, {"torch": "2.13"})
    assert report.startswith("**Right**")
    assert "| torch | 2.13 |" in report
    assert "### Is it right?\n\n```text\n  triton: works\n```\n" in report
    wrong = [Part("Is it right?", "  a: 5   WRONG\n  b: 6   WRONG\n  c: 7\n", 1), right[1]]
    report = report_of(wrong, {})
    assert report.startswith("**Wrong**: Is it right? (2 results)")
    assert "### Is it right? (exit status 1)" in report
    assert "1.2 ms" in report


def test_a_part_that_fails_keeps_no_other_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fails.py").write_text("print('before', flush=True); raise SystemExit('no such GPU')")
    (tmp_path / "works.py").write_text("print('after')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_check, "PARTS", {"One": "fails", "Two": "works"})
    with pytest.raises(SystemExit) as ended:
        gpu_check.main()
    assert ended.value.code
    report = (tmp_path / gpu_check.REPORT).read_text()
    assert report.startswith("**Wrong**: One")
    assert "before\nno such GPU" in report
    assert "after" in report
    assert "before\nno such GPU\nafter" in capfd.readouterr().out
    assert sys.version.split()[0] in report
