"""PostgreSQL from a wheel: start it, watch it, stop it. Knows nothing of indexes.

start_embedded(folder)          an EmbeddedServer, stopped when its last user ends
scratch_database(server)        a context manager with the URL of a temporary database
holds_server(folder)            whether a folder contains the data of an embedded server

Needs the `embedded` extra.
"""

from simsql.server.embedded import EmbeddedServer, holds_server, scratch_database, start_embedded

__all__ = ["EmbeddedServer", "holds_server", "scratch_database", "start_embedded"]
