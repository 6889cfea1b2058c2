"""What the judge tries with each program: the guards of Weir, what the model says, and what has to be
seen."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.clients.programs.calls import TOOLS, Ask, Edit, Read, Run, Write
from tests.clients.programs.scripted_model import Turn

NOTES = "Write greet.py, change its name, run it.\n"
WRITTEN = '''\
"""Greets: "ä", 'ö', $HOME, `ls`, %s, a\\\\b and \U0001f600."""

REPOSITORY = "git@github.com:acme/greetings.git"
SERVER = "http://127.0.0.1:8080/v1"  # or http://localhost:8000, or https://example.com/docs
VERSION = "3.11.7"
COMMIT = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"


def greet(name: str) -> str:
\treturn f"Hello, {name}!"


print(greet("World"))
'''
CHANGED = WRITTEN.replace("World", "Weir")
DONE = "The task is done: greet.py greets Weir."
CITY = "Paris"

READS = Turn("I read the notes first.", "The user has a task for me. I should read it.", Read("notes.txt"))
WRITES = Turn("Now I write the program.", "A small program will do.", Write("greet.py", WRITTEN))
READS_BACK = Turn("I read it again.", "Some programs want that.", Read("greet.py"))
EDITS = Turn(
    "Its name changes.",
    "One line differs.",
    Edit("greet.py", 'print(greet("World"))', 'print(greet("Weir"))'),
)
RUNS = Turn("I run it.", "It may have mistakes.", Run("python3 greet.py > said.txt"))
ASKS = Turn("How is the weather?", "A server knows.", Ask(CITY))
TASK = (READS, WRITES, READS_BACK, EDITS, RUNS, ASKS, Turn(DONE, "All is done."))

BLUEBIRD = "project bluebird"
CLOSED = "[A guard withheld the rest.]"
REPLY = "I may not speak of that."
DENIED = "[A tool call was withheld: the policy does not allow it.]"
MAIL, KEY = "ada.lovelace@babbage-engines.org", "ghp_" + "Zq7Rk2Vw9Tx4Lm8Np3Bs6Hd1Jf5Gc0YaUe2W"
SECRETS = f'OWNER = "{MAIL}"\nTOKEN = "{KEY}"\n'


def phrases(**args: Any) -> dict[str, Any]:
    return {"path": "phrases", "args": {"phrases": [BLUEBIRD], **args}}


@dataclass(frozen=True)
class Case:
    """`shown`: a pattern of what a person must find in the output. `withheld`: what must not be there, nor
    in the folder. `files`: what they contain afterwards. `ends_after`: the number of answers that the model
    begins until a guard ends one; None if no guard does. `prompt` is added to the first one. `calls`: it is
    about a call of a tool."""

    name: str
    hooks: Sequence[Any]
    turns: Sequence[Turn]
    shown: str
    files: Mapping[str, str] = field(default_factory=dict)
    withheld: Sequence[str] = ()
    ends_after: int | None = None
    prompt: str = ""
    calls: bool = False
    approves: bool | None = None
    """The answer of the person who is asked about each call. None: nobody is asked."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of Weir beside the hooks."""

    @property
    def asks_server(self) -> bool:
        return ASKS in self.turns and self.ends_after is None


AS_WRITTEN = {"greet.py": CHANGED, "said.txt": "Hello, Weir!\n"}
ENDS = phrases(action="terminate")
SAID = "It is called Project Bluebird, and it is late."
WITHHELD = ("Project Bluebird", "late")
RUNNERS = {"tools": [*TOOLS[Run], "Bash"], "effect": "deny"}
ASKS_A_PERSON = {"path": "tools", "args": {"rules": [RUNNERS], "default": "allow", "action": "ask"}}
REASON = r"\bphrase\b"
"""The reason of the guard `phrases`."""


PLAINLY = {"terminate_finish_reason": "stop"}


def closes_plainly(place: str, turn: Turn) -> Case:
    """A guard ends the answer with a text of its own, and the finish reason is that of any other answer:
    no program takes it for a broken one."""
    return Case(
        f"closes_plainly_in_{place}",
        [phrases(action="terminate", text=CLOSED)],
        (READS, turn, Turn(DONE)),
        re.escape(CLOSED),
        {},
        WITHHELD,
        2,
        calls=place == "call",
        settings=PLAINLY,
    )


CASES: Sequence[Case] = (
    Case("off", [], TASK, DONE, AS_WRITTEN),
    Case("quiet", ["pii", "secrets", ENDS], TASK, DONE, AS_WRITTEN),
    Case(
        "redacts",
        ["pii", "secrets"],
        (READS, Turn("I write it.", step=Write("owner.py", SECRETS)), Turn(f"{DONE} Ask {MAIL}.")),
        r"Ask \[EMAIL_ADDRESS\]",
        {"owner.py": SECRETS.replace(MAIL, "[EMAIL_ADDRESS]").replace(KEY, "[GITHUB_TOKEN]")},
        (MAIL, KEY),
    ),
    Case("ends_text", [ENDS], (READS, Turn(SAID)), REASON, {}, WITHHELD, 2),
    Case("ends_reasoning", [ENDS], (READS, Turn(DONE, SAID)), REASON, {}, WITHHELD, 2),
    Case(
        "ends_call",
        [ENDS],
        (READS, Turn("I write it.", step=Write("secret.txt", SAID)), Turn(DONE)),
        REASON,
        {},
        WITHHELD,
        2,
        calls=True,
    ),
    Case(
        "closes",
        [phrases(action="terminate", text=CLOSED)],
        (READS, Turn(SAID)),
        re.escape(CLOSED),
        {},
        WITHHELD,
        2,
    ),
    Case(
        "denies_call",
        [{"path": "tools", "args": {"rules": [RUNNERS], "default": "allow"}}],
        (Turn("I run it.", "Run it.", Run("touch ran.txt")), Turn(DONE)),
        re.escape(DENIED),
        {},
        (),
        1,
        calls=True,
    ),
    closes_plainly("text", Turn(SAID)),
    closes_plainly("reasoning", Turn(DONE, SAID)),
    closes_plainly("call", Turn("I write it.", step=Write("secret.txt", SAID))),
    Case("refuses", [phrases(prompt="refuse_new")], [Turn(DONE)], REASON, {}, (), 0, f" It is {BLUEBIRD}."),
    Case(
        "replies",
        [phrases(prompt="refuse_new", text=REPLY)],
        [Turn(DONE)],
        re.escape(REPLY),
        {},
        (),
        0,
        f" It is {BLUEBIRD}.",
        settings=PLAINLY,
    ),
    Case(
        "asks_and_may",
        [ASKS_A_PERSON],
        (Turn("I run it.", "Run it.", Run("touch ran.txt")), Turn(DONE)),
        DONE,
        {"ran.txt": ""},
        calls=True,
        approves=True,
    ),
    Case(
        "asks_and_may_not",
        [ASKS_A_PERSON],
        (Turn("I run it.", "Run it.", Run("touch ran.txt")), Turn(DONE)),
        re.escape(DENIED),
        {},
        (),
        1,
        calls=True,
        approves=False,
    ),
)
