"""Logical replication between two databases of one server."""

import contextlib
import itertools

from program import wait_until

_numbers = itertools.count()


@contextlib.contextmanager
def subscription(publisher, subscriber, *, options="", tables="TABLE article", condition="", settings=""):
    """Let the changes of tables reach the same tables of another database on this server."""
    name = f"feed_{next(_numbers)}"
    publisher.execute(f"CREATE PUBLICATION {name} FOR {tables} {condition}")
    # On one server, CREATE SUBSCRIPTION would wait for itself to make the slot.
    publisher.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    address = f"host={publisher.info.host} port={publisher.info.port} user=postgres dbname={publisher.info.dbname}"
    address += f" options=''{settings}''"
    subscriber.execute(
        f"CREATE SUBSCRIPTION {name} CONNECTION '{address}' PUBLICATION {name} WITH (create_slot = false{options})"
    )
    copied = (
        "SELECT FROM pg_subscription_rel AS r JOIN pg_subscription AS s ON s.oid = r.srsubid WHERE subname = %s"
    )
    wait_until(
        lambda: not subscriber.execute(f"{copied} AND srsubstate <> 'r'", [name]).fetchall(), "the initial copy"
    )
    try:
        yield name
    finally:
        subscriber.execute(f"ALTER SUBSCRIPTION {name} DISABLE")
        subscriber.execute(f"ALTER SUBSCRIPTION {name} SET (slot_name = NONE)")
        subscriber.execute(f"DROP SUBSCRIPTION {name}")
        wait_until(
            lambda: (
                not publisher.execute(
                    "SELECT FROM pg_replication_slots WHERE slot_name = %s AND active", [name]
                ).fetchall()
            ),
            "the slot to be free",
        )
        publisher.execute(f"SELECT pg_drop_replication_slot('{name}')")


def rows_of(connection):
    return sorted(connection.execute("SELECT id, fingerprint FROM article").fetchall())


def wait_for(subscriber, rows):
    wait_until(lambda: rows_of(subscriber) == rows, "the rows to be replicated")


def wait_until_applied(publisher, name):
    """Wait until a subscriber has applied all that the publisher has committed."""
    (written,) = publisher.execute("SELECT pg_current_wal_lsn()").fetchone()
    applied = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE slot_name = %s"
    wait_until(lambda: publisher.execute(applied, [written, name]).fetchone()[0], "the subscriber to catch up")
