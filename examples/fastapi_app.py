"""A FastAPI service whose model's answers are guarded as they stream.

pip install fastapi uvicorn
uvicorn examples.fastapi_app:app
"""

from collections.abc import AsyncIterator

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse

import weir

app = FastAPI()
guards = weir.Guards([weir.HookSpec("pii", {"prompt": "refuse"}), "secrets"])


async def model(question: str) -> AsyncIterator[str]:
    """Your own, in place of this one."""
    for word in ["You asked: ", question, " Write to ann@mill", "race.initech.com", ", she knows."]:
        yield word


@app.post("/ask")
async def ask(question: str) -> StreamingResponse:
    try:
        answer = guards.prompt(question)
    except weir.RefusedError as refused:
        raise HTTPException(400, refused.reason) from None
    return StreamingResponse(answer.stream(model(answer.prompt)), media_type="text/plain")
