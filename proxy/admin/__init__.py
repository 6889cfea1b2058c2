"""The API of the one who operates the server."""
