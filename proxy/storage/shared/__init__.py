"""State that processes and servers share: counts, stored responses. Memory, SQLite, PostgreSQL or Redis."""
