"""A bare relay: it passes each event on as it comes. What it costs is what any server between costs.

python -m streamguard_bench.relay --upstream http://127.0.0.1:9000 --port 8000
"""

import argparse

import aiohttp
from aiohttp import web


def app(upstream: str) -> web.Application:
    """`upstream`: without `/v1`."""
    made = web.Application(client_max_size=2**24)

    async def session(_: web.Application):  # type: ignore[no-untyped-def]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as made["http"]:
            yield

    async def relay(request: web.Request) -> web.StreamResponse:
        http: aiohttp.ClientSession = request.app["http"]
        headers = {"Content-Type": "application/json"}
        async with http.request(
            request.method, upstream + request.path, data=await request.read(), headers=headers
        ) as got:
            response = web.StreamResponse(
                status=got.status, headers={"Content-Type": got.headers["Content-Type"]}
            )
            await response.prepare(request)
            async for data in got.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    made.cleanup_ctx.append(session)
    made.router.add_route("*", "/{path:.*}", relay)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    web.run_app(
        app(options.upstream), host="127.0.0.1", port=options.port, handler_cancellation=True, print=None
    )


if __name__ == "__main__":
    main()
