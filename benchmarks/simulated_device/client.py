"""A client that costs as little as it can: `python -m benchmarks.simulated_device.client URL[,URL] N BODY`.

It reads N streams at a time, of all URLs in turn. It prints their seconds and their events as JSON.
"""

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit


async def count_events(url: str, body: bytes) -> int:
    parts = urlsplit(url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**20)
    writer.write(head.encode() + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"the server answered {status!r}")
    num_events = 0
    while data := await reader.read(2**18):
        num_events += data.count(b"data: ")
    writer.close()
    return num_events


async def main(urls: list[str], num_streams: int, body: str) -> None:
    begin = time.perf_counter()
    each = (count_events(urls[i % len(urls)], body.encode()) for i in range(num_streams))
    counts = await asyncio.gather(*each)
    print(json.dumps({"seconds": time.perf_counter() - begin, "events": sum(counts)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3]))
