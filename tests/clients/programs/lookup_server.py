"""An MCP server with one tool, over standard input and output: `python lookup_server.py`."""

import json
import sys

TOOL = {
    "name": "lookup",
    "description": "The weather in a city.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            version = asked["params"]["protocolVersion"]
            about = {"name": "weather", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            text = f"21 degrees in {asked['params']['arguments']['city']}"
            result = {"content": [{"type": "text", "text": text}]}
        case _:
            result = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
