"""The page's files as a browser gets them. `tests/page` opens them in one."""

import re
from pathlib import Path

import pytest

import proxy.http.page
from proxy.http.page.files import page_files
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve, hello

STATIC = Path(proxy.http.page.__file__).parent / "static"
OURS = sorted(file for file in STATIC.iterdir() if file.suffix in (".html", ".css", ".js", ".svg"))
REFERENCES = (
    r'(?:src|href)="(?!#)([^"]+)"',  # in HTML
    r'from "\./([^"]+)"',  # in a module
    r'url\("([^"]+)"\)',  # in a style sheet
)


async def load(client: Client, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.http.get(client.url + path, headers=names) as response:
        return response.status, dict(response.headers), await response.read()


async def test_every_file_is_served_with_headers_that_allow_this_server_alone(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    for path, file in page_files().items():
        status, headers, body = await load(client, path)
        assert (status, body) == (200, file.body)
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy.pop("img-src") == "'self' data:"
        assert {name for name, source in policy.items() if source == "'self'"} == {
            "script-src",
            "style-src",
            "connect-src",
            "font-src",
        }
        assert {name for name, source in policy.items() if source == "'none'"} == {
            "default-src",
            "frame-ancestors",
            "base-uri",
            "form-action",
        }
        assert len(policy) == 8
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-cache"


async def test_a_file_that_the_browser_has_is_not_sent_again(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    _, headers, _ = await load(client, "/page/main.js")
    status, again, body = await load(client, "/page/main.js", If_None_Match=headers["Etag"])
    assert (status, body, again["Etag"]) == (304, b"", headers["Etag"])
    assert (await load(client, "/page/main.js", If_None_Match='"other"'))[0] == 200


async def test_the_page_loads_without_a_key_and_what_it_asks_for_needs_one(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), api_key=["k"])
    assert (await load(client, "/"))[0] == 200
    assert (await load(client, "/page/main.js"))[0] == 200
    for path in ("/page/", "/page/nothing.js", "/page/../v1/models", "/page/main.js/", "/v1/models"):
        assert (await load(client, path))[0] == 401
    assert (await client.post("/v1/chat/completions", CHAT))[0] == 401


async def test_a_link_of_another_site_leads_to_the_page_and_to_nothing_else(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    follows = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert (await load(client, "/", **follows))[0] == 200
    for path in ("/page/main.js", "/v1/models", "/admin/live", "/metrics"):
        assert (await load(client, path, **follows))[0] == 403
    for other in ({"Sec_Fetch_Dest": "iframe"}, {"Sec_Fetch_Mode": "cors"}):
        assert (await load(client, "/", **(follows | other)))[0] == 403


async def test_there_is_no_page_without_the_option(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), page=False)
    assert {path: (await load(client, path))[0] for path in page_files()} == dict.fromkeys(page_files(), 404)


async def test_only_the_page_s_own_paths_are_served(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    for path in ("/page", "/page/", "/index.html", "/page/index.html", "/page/..%2ffiles.py"):
        assert (await load(client, path))[0] == 404
    async with client.http.post(client.url + "/") as response:
        assert response.status == 405


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_a_file_names_no_other_server_and_only_files_that_there_are(file: Path) -> None:
    text = re.sub(r"^\s*(//|/?\*).*$", "", file.read_text(), flags=re.MULTILINE)
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[\w./-]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, which nobody asks for
    for pattern in REFERENCES:
        for name in re.findall(pattern, text):
            assert (STATIC / name.removeprefix("page/")).is_file(), name


@pytest.mark.parametrize("file", sorted(STATIC.glob("*.[hj]*")), ids=lambda file: file.name)
def test_no_file_makes_code_or_html_of_text(file: Path) -> None:
    text = file.read_text()
    for danger in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert danger not in text
    assert not re.search(r'<[^>]+\s(on\w+|style)=["\']', text)  # neither would pass the policy
