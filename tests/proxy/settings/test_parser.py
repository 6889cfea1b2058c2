"""The commands name a wrong argument and the one that was meant."""

import pytest

from proxy.settings.parser import CommandParser


def parser() -> CommandParser:
    main = CommandParser(prog="weir")
    commands = main.add_subparsers(required=True)
    serve = commands.add_parser("serve")
    serve.add_argument("--hook-timeout", type=float)
    serve.add_argument("--hooks")
    serve.add_argument("--engine", choices=["openai", "echo"])
    return main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("servr", "invalid choice: 'servr'; did you mean 'serve'? (there are serve)\nSee weir --help\n"),
        (
            "serve --hook-timeot 3",
            "weir serve: error: unrecognized arguments: --hook-timeot; did you mean '--hook-timeout'?\n"
            "See weir serve --help\n",
        ),
        ("serve --engine opnai", "argument --engine: invalid choice: 'opnai'; did you mean 'openai'? (there"),
        (
            "serve --guardrail pii",
            "unrecognized arguments: --guardrail; there is no --guardrail; did you mean '--hooks'?",
        ),
        ("serve --rpm 3", "a key and a policy have it as requests_per_minute under limits"),
        ("serve --model-list x", "unrecognized arguments: --model-list\n"),
        ("serve --nonsense", "unrecognized arguments: --nonsense\n"),
        ("serve nonsense", "unrecognized arguments: nonsense\n"),
    ],
)
def test_an_error_is_two_lines_and_says_what_was_meant(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parser().parse_args(arguments.split())
    err = capsys.readouterr().err
    assert left.value.code == 2
    assert says in err
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize("arguments", ["serve --api-kye sk-secret", "serve --api-kye=sk-secret"])
def test_the_value_of_an_unknown_option_is_not_quoted(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(arguments.split())
    assert "sk-secret" not in capsys.readouterr().err
