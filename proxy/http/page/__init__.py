"""The page at `/`: a chat that shows what hooks decide, and what the server does."""
