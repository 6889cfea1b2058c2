"""An MCP server with two tools, for the environment of LiteLLM: `python tools.py`."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")


@server.tool()
def save(text: str) -> str:
    """Save a note."""
    return f"saved: {text}"


@server.tool()
def contact() -> str:
    """Whom to write to."""
    return "Write to jane.doe@millrace.com now."


if __name__ == "__main__":
    server.run()
