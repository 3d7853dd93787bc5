#!/bin/sh
# Run once, when the database is new: the role of the service. It owns the tables that its migrations create,
# and may index them: see docs/reference/permissions.md.
set -eu
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<'SQL'
\getenv password BACKEND_PASSWORD
CREATE ROLE backend LOGIN PASSWORD :'password';
GRANT CREATE ON SCHEMA public TO backend;
GRANT CREATE ON SCHEMA simsql TO backend;
GRANT INSERT, UPDATE, DELETE ON simsql.registry TO backend;
SQL
