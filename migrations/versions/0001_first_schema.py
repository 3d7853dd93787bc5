"""The first schema: everything in sql/, in the order in which one file needs another."""

from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

FILES = (
    "schema",
    "fingerprints",
    "layout",
    "search",
    "indexes",
    "upkeep",
    "build",
    "verify",
    "joins",
    "clusters",
    "load",
    "safety",
)


def upgrade() -> None:
    """Create the schema simsql with all that it holds."""
    folder = context.config.attributes["sql_folder"]
    for name in FILES:
        script = (folder / f"{name}.sql").read_text(encoding="utf-8")
        if context.is_offline_mode():
            context.get_context().impl.static_output(script)
        else:
            # Without parameters, so that neither SQLAlchemy nor psycopg reads colons and percent signs.
            op.get_bind().execution_options(no_parameters=True).exec_driver_sql(script)
    # Whoever may search may ask which version is installed.
    op.execute("GRANT SELECT ON simsql.schema_version TO PUBLIC")
