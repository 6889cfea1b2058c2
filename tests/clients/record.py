"""Records the sessions anew, with the SDKs that are installed: `python -m tests.clients.record`.

`make test-clients` installs those for TypeScript."""

import asyncio

from tests.clients import typescript_sdks
from tests.clients.agent import TURNS
from tests.clients.agents import AGENTS
from tests.clients.endpoints import sdks
from tests.clients.engines import local
from tests.clients.recorder import recording
from tests.clients.session import FOLDER, save


async def main() -> None:
    async with local([]) as weir:
        for name, agent in AGENTS.items():
            async with recording(weir) as recorder, sdks(recorder.url) as made:
                assert tuple(await agent(made)) == TURNS
            save(FOLDER / f"{name}_python.jsonl", recorder.requests)
        for name in AGENTS:
            async with recording(weir) as recorder:
                assert tuple(await typescript_sdks.hold_conversation(name, recorder.url)) == TURNS
            save(FOLDER / f"{name}_typescript.jsonl", recorder.requests)


if __name__ == "__main__":
    asyncio.run(main())
