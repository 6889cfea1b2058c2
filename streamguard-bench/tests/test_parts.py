"""The parts that every run needs: drawing, cutting, reading, and the files of targets."""

import json
import random
import re
from pathlib import Path

import aiohttp
import pytest

from streamguard_bench import judges
from streamguard_bench.cli import main, merged
from streamguard_bench.client import OpenAIReader, Seen
from streamguard_bench.draw import Draw
from streamguard_bench.judges import longest_part
from streamguard_bench.report import html_of, markdown_of, text_of
from streamguard_bench.run import Result, delays, most_held
from streamguard_bench.scripts import CUTS, Piece, Script, cut_pieces
from streamguard_bench.target import Target, TargetError, load, running
from streamguard_bench.upstream import Asked, Tokens
from streamguard_bench.values import FORMS, KINDS, PROSE, SENTENCES, draw

ALL = ("chat", "completions", "messages")


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_loses_nothing(cut: str, kind: str) -> None:
    rng = random.Random(cut + kind)
    for _ in range(50):
        value = draw(kind, rng)
        text = f"It is {value}, they say."
        pieces = cut_pieces(text, value, cut, rng)
        assert "".join(pieces) == text
        assert all(pieces)


def test_the_same_seed_draws_the_same_scripts() -> None:
    first, again, other = (list(Draw(seed, tuple(KINDS), ALL).leaks(5)) for seed in (1, 1, 2))
    assert first == again
    assert {script.secret for script in first}.isdisjoint(script.secret for script in other)


def test_each_script_says_its_value() -> None:
    for script in Draw(4, tuple(KINDS), ALL).leaks(16):
        said = "".join(piece.text for piece in script.pieces if piece.choice == script.n - 1)
        if script.channel.startswith("call, escaped"):
            said = json.loads(said)["text"]
        assert script.secret in (script.prompt + said if script.is_echoed else said)


def test_cards_and_accounts_have_check_digits() -> None:
    rng = random.Random(2)
    for _ in range(50):
        digits = [int(d) for d in draw("card", rng) if d.isdigit()]
        doubled = [d if i % 2 else sum(divmod(2 * d, 10)) for i, d in enumerate(digits)]
        assert sum(doubled) % 10 == 0
        account = draw("iban", rng)
        moved = account[4:] + account[:4]
        assert int("".join(str(int(char, 36)) for char in moved)) % 97 == 1


@pytest.mark.parametrize(
    ("value", "text", "expected"), [("abcdef", "xxcdexx", 3), ("abc", "", 0), ("abc", "zabcz", 3)]
)
def test_the_longest_part_of_a_value(value: str, text: str, expected: int) -> None:
    assert longest_part(value, text) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_form_matches_each_value_of_its_kind_and_no_prose(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(200):
        value = draw(kind, rng)
        found = re.search(FORMS[kind], SENTENCES[kind].format(value))
        assert found is not None
        assert found[0] == value
    assert not re.search(FORMS[kind], " ".join(PROSE))


async def test_texts_of_a_target_are_filled_in_with_the_pattern_of_its_values(tmp_path: Path) -> None:
    target = Target(
        name="one",
        command=["{python}", "-m", "http.server", "{port}", "--bind", "127.0.0.1"],
        ready="/",
        guards=("ssn", "aws_key"),
        headers={"x-config": '{"rule": {pattern_json}, "url": "{upstream}"}'},
        files={"rule.txt": "{pattern}"},
    )
    async with running(target, "http://127.0.0.1:9") as server:
        config = json.loads(server.headers["x-config"])
        async with aiohttp.ClientSession() as http, http.get(server.url[:-3] + "/rule.txt") as got:
            assert await got.text() == config["rule"]
    assert config["url"] == "http://127.0.0.1:9"
    assert re.fullmatch(config["rule"], "123-45-6789")
    assert re.fullmatch(config["rule"], "AKIA" + "A" * 16)


def test_content_that_leaks_beside_logprobs_does_not_count_as_logprobs() -> None:
    script = Script(name="case-x", kind="leak", channel="logprobs", secret="maria@acme.org")
    seen = Seen(status=200, pieces=[(0.0, "content", 0, "to maria@acme.org.")])
    assert judges.outcome(script, seen) == "absent"
    seen.logprobs[0] = "to maria@acme.org."
    assert judges.outcome(script, seen) == "leaked"


def test_calls_that_are_left_out_are_no_change_unless_the_answer_says_that_it_has_some() -> None:
    script = Script(name="case-x", kind="harmless", channel="call", pieces=(Piece('{"a": 1}', "call"),))
    seen = Seen(status=200, is_over=True, reasons={0: "stop"})
    assert not [*judges.changes(script, seen)]
    seen.reasons[0] = "tool_calls"
    assert [fault.judge for fault in judges.changes(script, seen)] == ["changed"]
    assert [fault.judge for fault in judges.calls(script, seen)] == ["call"]


def test_a_second_choice_that_is_left_out_is_no_change_and_needs_no_end() -> None:
    script = Script(
        name="case-x",
        kind="harmless",
        channel="second choice",
        n=2,
        pieces=(Piece("a"), Piece("b", choice=1)),
    )
    seen = Seen(status=200, is_over=True, pieces=[(0.0, "content", 0, "a")], reasons={0: "stop"})
    assert not [*judges.changes(script, seen)]
    seen.pieces.append((0.0, "content", 1, "c"))
    assert [fault.judge for fault in judges.changes(script, seen)] == ["changed", "end"]


@pytest.mark.parametrize(
    ("seen", "count", "is_fault"),
    [
        (Seen(status=200), 1, True),
        (Seen(status=200, is_over=True), 1, False),
        (Seen(status=500), 1, False),
        (Seen(), 0, False),
    ],
)
def test_an_upstream_goes_on_in_vain_only_if_its_client_left(seen: Seen, count: int, is_fault: bool) -> None:
    assert bool([*judges.left(seen, Asked(count=count))]) is is_fault
    assert not [*judges.left(seen, Asked(count=count, was_left=True))]


def test_a_value_is_found_in_logprobs_ids_and_errors() -> None:
    script = Script(name="case-x", kind="leak", channel="content", secret="maria@acme.org")
    for place in ("logprobs", "ids", "error"):
        seen = Seen(status=200)
        if place == "error":
            seen.error = "no: maria@acme.org"
        else:
            getattr(seen, place)[0] += "to maria@acme.org."
        assert [fault.judge for fault in judges.leaks(script, seen)] == ["leak"]


def test_an_answer_that_ends_with_an_error_is_withheld_and_its_channel_not_absent() -> None:
    script = Script(name="case-x", kind="leak", channel="content", secret="maria@acme.org")
    assert judges.outcome(script, Seen(status=200, error="blocked")) == "withheld"
    assert judges.outcome(script, Seen(status=200)) == "absent"


def test_a_mask_that_keeps_the_last_digits_is_no_part() -> None:
    script = Script(name="case-x", kind="leak", channel="content", secret="4111 1111 1111 1234")
    seen = Seen(status=200, pieces=[(0.0, "content", 0, "The card **** **** **** 1234 is known.")])
    assert judges.outcome(script, seen) == "withheld"


def test_a_reader_joins_calls_and_logprobs() -> None:
    seen = Seen(status=200)
    reader = OpenAIReader(seen, Tokens())
    for arguments in ('{"a":', ' "b"}'):
        reader.event(
            json.dumps(
                {
                    "choices": [
                        {
                            "index": 0,
                            "delta": {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]},
                        }
                    ]
                }
            )
        )
    reader.event(
        json.dumps(
            {
                "choices": [
                    {"index": 0, "delta": {}, "logprobs": {"content": [{"token": "x", "top_logprobs": []}]}}
                ]
            }
        )
    )
    reader.event("[DONE]")
    assert seen.calls[0].arguments == '{"a": "b"}'
    assert seen.logprobs[0] == "x"
    assert seen.is_over


def test_delays_and_held_text() -> None:
    asked = Asked(sent=[(1.0, Piece("ab")), (2.0, Piece("cd")), (3.0, Piece("e"))])
    seen = Seen(pieces=[(2.5, "content", 0, "abc"), (3.5, "content", 0, "de")])
    assert delays(asked, seen) == [1.5, 1.5, 0.5]
    assert most_held(asked, seen) == 4


def test_a_report_of_several_has_the_last_result_of_each_server() -> None:
    first = {"seed": 1, "results": [{"name": "a", "error": "x"}, {"name": "b", "error": ""}]}
    assert merged([first, {"seed": 2, "results": [{"name": "a", "error": ""}]}]) == {
        "seed": 1,
        "results": [{"name": "a", "error": ""}, {"name": "b", "error": ""}],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x", "command is missing"),
        ("name: x\ncommand: [a]\nguard: [email]", "no field 'guard'"),
        ("name: x\ncommand: [a]\nguards: [passport]", "guards has 'passport'"),
        ("- 1", "must be a mapping"),
        ("name: [", "expected"),
    ],
)
def test_a_target_file_that_is_wrong_is_told(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(text)
    with pytest.raises(TargetError, match=said):
        load(path)


async def test_a_server_that_is_not_installed_is_told_with_what_it_needs() -> None:
    target = Target(name="x", command=["/nowhere/guard"], needs="pip install guard")
    with pytest.raises(TargetError, match=r"x does not start: .*needs: pip install guard"):
        async with running(target, "http://127.0.0.1:9"):
            pass


def test_a_run_names_its_report_and_fails_if_a_target_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, page, figures = (tmp_path / name for name in ("x.yaml", "a.html", "a.json"))
    target.write_text("name: x\ncommand: [/nowhere/guard]\nneeds: pip install guard")
    asked = ["streamguard-bench", "run", str(target), "--html", str(page), "--json", str(figures)]
    monkeypatch.setattr("sys.argv", asked)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert f"the report: {page}; its figures: {figures}" in capsys.readouterr().out
    assert "pip install guard" in page.read_text()


def test_the_files_of_this_folder_are_read() -> None:
    for path in (Path(__file__).parents[1] / "targets").glob("*.yaml"):
        assert load(path).command


def test_the_report_escapes_names_and_tells_what_was_not_run() -> None:
    results = [
        Result("<b>", error="it does not start"),
        Result("a & b", channels={"content": {"leaked": 1, "withheld": 3}}, faults={"leak: content": 1}),
    ]
    found = {"seed": 1, "date": "2026-01-01", "machine": "m", "results": [r.as_json() for r in results]}
    page = html_of(found)
    assert "<b>" not in page
    assert "1 of 4" in page
    assert "it does not start" in text_of(found)
    assert "| content | 1 of 4 |" in markdown_of(found)
