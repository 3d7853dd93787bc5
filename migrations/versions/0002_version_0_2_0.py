"""Version 0.2.0, the first: where every upgrade begins."""

revision = "0002"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: see env.py."""
