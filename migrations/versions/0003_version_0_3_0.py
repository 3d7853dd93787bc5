"""Version 0.3.0: marks that an index is complete, the sources of fingerprints, and explicit privileges."""

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: see env.py."""
