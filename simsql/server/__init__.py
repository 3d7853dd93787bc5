"""A PostgreSQL server from a wheel, for a machine without one.

start_embedded(folder)          an EmbeddedServer, stopped when its last user ends

Knows nothing of indexes. Needs the `embedded` extra. The other packages of simsql also import names from here
that are not in `__all__`.
"""

from simsql.server.embedded import EmbeddedServer as EmbeddedServer
from simsql.server.embedded import holds_server as holds_server
from simsql.server.embedded import start_embedded

__all__ = ["start_embedded"]
