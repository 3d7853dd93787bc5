"""A miniature Alembic project: env.py, the usual template, and Alembic's commands in this process."""

import io
import itertools
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import alembic
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import BigInteger, Column, Engine, MetaData, Table, Text

from simsql.sqlalchemy import Fingerprint

# As `alembic init` writes it, apart from where the engine, the models and further options come from.
ENVIRONMENT = """
from alembic import context

import simsql.alembic

simsql.alembic.register()
project = context.config.attributes["project"]
options = {"target_metadata": project.metadata, **project.options}

if context.is_offline_mode():
    dialect = {"dialect_name": "postgresql", "dialect_opts": {"paramstyle": "named"}, "literal_binds": True}
    context.configure(**dialect, **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    with project.engine.connect() as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
"""


@dataclass
class Project:
    """Models and a database, and the history that leads the one to the other."""

    folder: Path
    engine: Engine
    metadata: Any = field(default_factory=MetaData)
    options: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        (self.folder / "versions").mkdir(parents=True)
        (self.folder / "env.py").write_text(ENVIRONMENT, encoding="utf-8")
        template = Path(alembic.__file__).parent / "templates" / "generic" / "script.py.mako"
        shutil.copy(template, self.folder)

    def config(self, **streams: io.StringIO) -> Config:
        config = Config(**streams)
        config.set_main_option("script_location", str(self.folder))
        config.attributes["project"] = self
        return config

    def revise(self) -> "Revision":
        """Autogenerate a revision, and return it."""
        name = f"{next(self._numbers):04}"
        script = command.revision(self.config(stdout=io.StringIO()), "models", autogenerate=True, rev_id=name)
        return Revision.read(Path(script.path))

    def write(self, upgrade: str, downgrade: str = "pass", *, name: str | None = None) -> None:
        """Write a revision by hand."""
        name = name or f"{next(self._numbers):04}"
        script = command.revision(self.config(stdout=io.StringIO()), "by hand", rev_id=name)
        path = Path(script.path)
        text = path.read_text(encoding="utf-8")
        for body in (upgrade, downgrade):
            text = text.replace("    pass\n", "".join(f"    {line}\n" for line in body.splitlines()), 1)
        path.write_text(text, encoding="utf-8")

    def upgrade(self, target: str = "head", **options: Any) -> None:
        command.upgrade(self.config(), target, **options)

    def downgrade(self, target: str = "base", **options: Any) -> None:
        command.downgrade(self.config(), target, **options)

    def migrate(self) -> "Revision":
        """Autogenerate a revision and run it; afterwards database and models agree."""
        revision = self.revise()
        self.upgrade()
        self.check()
        return revision

    def check(self) -> None:
        """Raise what `alembic check` raises, unless database and models agree."""
        command.check(self.config(stdout=io.StringIO()))

    def sql(self, run: Any, *arguments: str) -> str:
        """Return what upgrade or downgrade prints with --sql."""
        output = io.StringIO()
        run(self.config(output_buffer=output), *arguments, sql=True)
        return output.getvalue()

    def differences(self) -> list[Any]:
        """What autogenerate would do, as tuples."""
        with self.engine.connect() as connection:
            return compare_metadata(MigrationContext.configure(connection, opts=dict(self.options)), self.metadata)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL as it stands, and return its rows."""
        with self.engine.begin() as connection:
            result = connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
            return [tuple(row) for row in result] if result.returns_rows else []

    def indexes(self) -> list[tuple[Any, ...]]:
        """What simsql.indexes shows: table, column, distance, design, recipe, scope."""
        rows = self.execute(
            "SELECT table_name, column_name, distance, blocks, lead, inner_blocks, recipe, scope, state"
            " FROM simsql.indexes ORDER BY id"
        )
        assert {row[-1] for row in rows} <= {"ready"}
        return [(*row[:3], row[3:6], *row[6:-1]) for row in rows]


@dataclass(frozen=True)
class Revision:
    """The text of a migration."""

    text: str
    upgrade: tuple[str, ...]
    """The operations, each in one line."""
    downgrade: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Revision":
        text = path.read_text(encoding="utf-8")
        _, upgrade, downgrade = re.split(r"def (?:up|down)grade\(\)", text)
        return cls(text, *(tuple(_operations(body)) for body in (upgrade, downgrade)))

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """The names of the operations, up and down."""
        up, down = ([re.match(r"op\.(\w+)", line)[1] for line in body] for body in (self.upgrade, self.downgrade))
        return up, down


def _operations(body: str) -> Iterator[str]:
    for statement in re.split(r"\n    (?=op\.)", body)[1:]:
        yield re.sub(r"\s*\n\s*", " ", statement.split("\n    #")[0]).strip()


def article(metadata: MetaData, *items: Any, name: str = "article", **options: Any) -> Table:
    """A table of articles with a fingerprint."""
    columns = (
        Column("id", BigInteger, primary_key=True),
        Column("body", Text),
        Column("fingerprint", Fingerprint()),
    )
    return Table(name, metadata, *columns, *items, **options)


def models(*items: Any, **options: Any) -> MetaData:
    """Models with one table of articles."""
    metadata = MetaData()
    article(metadata, *items, **options)
    return metadata
