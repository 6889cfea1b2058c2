"""The checks of an HTTP request before its endpoint sees it: key, browser, caller, body."""
