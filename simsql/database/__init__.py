"""Everything that talks to PostgreSQL, through SQLAlchemy Core and psycopg. Knows no ORM models."""
