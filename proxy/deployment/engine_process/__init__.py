"""Models in a process of their own, which several processes that serve share.

`EngineHost` runs the engines. `RemoteEngine` is one of them, as a process that serves sees it. One connection
is for one engine and one such process. The socket is in a folder that only the user of the service reads.
"""
