"""Streams from OpenAI-compatible servers, timed by their client.

    client     one request, read over server-sent events
    figures    records of requests in, latencies and throughput out
    turns      closed loops on several servers in turns, and the ratios between them

Times are in seconds. Only figures give latencies in milliseconds, as vLLM's do.
"""
