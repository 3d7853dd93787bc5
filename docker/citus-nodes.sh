#!/bin/sh
# Registers the nodes of a cluster at the coordinator, to which psql connects: WORKERS is a list of host:port. It can
# run after every start, because nodes that are registered stay as they are.
set -eu
run() {
    psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --output=/dev/null --set=host="$1" --set=port="$2"
}
# The workers reach the coordinator by this name.
echo "SELECT citus_set_coordinator_host(:'host', :'port');" | run "$PGHOST" "$PGPORT"
for worker in $WORKERS; do
    echo "SELECT citus_add_node(:'host', :'port');" | run "${worker%:*}" "${worker##*:}"
done
