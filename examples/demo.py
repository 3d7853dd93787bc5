"""The second half of `make demo`: documents in PostgreSQL, searched in SQL and through a model.

    python examples/demo.py FILE...

The server is that of the `embedded` extra, in a temporary folder.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from sqlalchemy import URL, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from simsql import simhash
from simsql.database import install_schema, open_engine
from simsql.server import start_embedded
from simsql.sqlalchemy import Fingerprint, SimhashIndex, near

LICENCE = Path(__file__).resolve().parents[1] / "LICENSE"
SEARCH = """\
SELECT document.name, near.distance
  FROM simsql.near('document', simsql.fp(:fingerprint), 3) AS near
  JOIN document USING (fingerprint)
 ORDER BY near.distance, document.fingerprint, document.id
 LIMIT 5"""
PLAN = "SELECT * FROM simsql.explain_near('document', simsql.fp(:fingerprint), 3)"
LEFT_OUT = ("Buffers:", "Heap Fetches:", "Index Searches:")


class Base(DeclarativeBase):
    """The tables of the demo."""


class Document(Base):
    """A file: the index finds documents by the fingerprints of their texts."""

    __tablename__ = "document"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    body: Mapped[str]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    __table_args__ = (SimhashIndex("fingerprint", distance=3),)


def main() -> None:
    """Load the files into a new server, and search for texts near the licence of simsql."""
    with tempfile.TemporaryDirectory(prefix="simsql-") as parent:
        Path(parent).chmod(0o711)  # root runs the server as another user
        with start_embedded(Path(parent, "server")) as server:
            demonstrate(server.url(), ["--server-dir", str(server.folder)])


def demonstrate(url: URL, options: list[str]) -> None:
    """Show it in a database, which the options choose for the commands of simsql."""
    engine = open_engine(url)
    install_schema(engine)
    Base.metadata.create_all(engine)
    show(
        "The documents and their fingerprints",
        "$ simsql load document FILE... --text-column body --id-column name",
    )
    run("load", "document", *sys.argv[1:], "--text-column", "body", "--id-column", "name", *options)
    licence = LICENCE.read_text(encoding="utf-8")
    given = {"fingerprint": simhash(licence)}
    with Session(engine) as session:
        show("Texts near the licence of simsql, in SQL", SEARCH)
        for name, distance in session.execute(text(SEARCH), given):
            print(f"{distance:>3}  {name}")
        show("The first half of the plan: prefix range scans, then bit_count", PLAN)
        plan = "\n".join(session.scalars(text(PLAN), given)).partition("\nPlanning Time")[0]
        print("\n".join(line for line in plan.splitlines() if not line.lstrip().startswith(LEFT_OUT)))
        show("The same search through a model", "near(Document.fingerprint, text=licence, distance=3).limit(5)")
        statement = near(Document.fingerprint, text=licence, distance=3).limit(5)
        for document, distance in session.execute(statement):
            print(f"{distance:>3}  {document.name}")
    engine.dispose()
    show("The state of the index", "$ simsql status")
    run("status", "--format", "table", *options)


def show(title: str, code: str) -> None:
    """Print a title and code."""
    print(f"\n-- {title}\n{code}\n", flush=True)


def run(*arguments: str) -> None:
    """Run a command of simsql."""
    subprocess.run([Path(sys.executable).with_name("simsql"), *arguments], check=True)


if __name__ == "__main__":
    main()
