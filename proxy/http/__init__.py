"""The HTTP application: the door that every request passes, the endpoints behind it, the admin API and
the page."""
