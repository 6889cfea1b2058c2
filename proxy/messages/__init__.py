"""The Messages API (`POST /v1/messages`): another shape of a chat. Engines and hooks see a chat."""
