"""Records the sessions anew, with the SDKs that are installed: `python -m tests.clients.record`."""

import asyncio

from tests.clients.agent import TURNS
from tests.clients.agents import AGENTS
from tests.clients.endpoints import sdks
from tests.clients.engines import local
from tests.clients.recorder import recording
from tests.clients.session import FOLDER, save


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    async with local([]) as weir:
        for name, agent in AGENTS.items():
            async with recording(weir) as recorder, sdks(recorder.url) as made:
                assert tuple(await agent(made)) == TURNS
            save(FOLDER / f"{name}_python.jsonl", recorder.requests)


if __name__ == "__main__":
    asyncio.run(main())
