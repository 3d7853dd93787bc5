"""Projects shaped like applications of others gain near-duplicate search, use it, and lose it again."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from alembic_project import Project
from catalog import objects_of_database
from program import run
from sqlalchemy import CHAR, Connection, Engine, MetaData, create_engine, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeDecorator

from simsql import simhash
from simsql.fingerprint import simhash_parts
from simsql.sqlalchemy import Fingerprint, SimhashIndex, claim, near

OLD = "Simmer the tomatoes with garlic and basil for an hour, then season the sauce with salt and pepper."
NEW = "Whisk the eggs with sugar, fold in the flour and the melted butter, and bake the cake until golden."


def backfill(table: str, database: Engine) -> None:
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    run("backfill", table, "--database", url).done()


class Guid(TypeDecorator[str]):
    """A type of the application, which its migrations name by the prefix."""

    impl = CHAR(32)
    cache_ok = True

    def __repr__(self) -> str:
        return "CHAR(32)"


def recipe_manager(*, similar: bool) -> type[Any]:
    """The model of a recipe manager, before and after it can find similar recipes."""

    class Base(DeclarativeBase):
        metadata = MetaData(naming_convention={"ix": "ix_%(table_name)s_%(column_0_name)s"})

    class Recipe(Base):
        __tablename__ = "recipes"
        id: Mapped[str] = mapped_column(Guid, primary_key=True)
        group_id: Mapped[str] = mapped_column(Guid, index=True)
        name: Mapped[str | None]
        description: Mapped[str | None]
        if similar:
            fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source={"name": 3, "description": 1}))
            __table_args__ = (SimhashIndex("fingerprint", distance=7, scope=["group_id"]),)

    return Recipe


def write_recipes(model: type[Any], engine: Engine) -> None:
    """What the application's own tests check, on any database."""
    with Session(engine) as session:
        session.add(model(id="a2", group_id="a", name="Cake", description=NEW))
        session.flush()
        session.get(model, "a2").name = "Butter cake"
        session.commit()
        assert session.get(model, "a2").fingerprint == simhash_parts([("Butter cake", 3), (NEW, 1)])


def test_a_recipe_manager_on_psycopg2_with_a_prefix_for_its_types(empty_database: Engine, tmp_path: Path) -> None:
    engine = create_engine(empty_database.url.set(drivername="postgresql+psycopg2"))
    options = {"user_module_prefix": "sa.", "render_as_batch": True}
    plain, model = (recipe_manager(similar=similar) for similar in (False, True))
    project = Project(tmp_path / "project", engine, plain.metadata, options)
    empty = objects_of_database(engine)
    project.migrate()
    before = objects_of_database(engine)
    with engine.begin() as connection:
        sauce = {"name": "Sauce", "description": OLD}
        connection.execute(insert(plain), [{"id": f"{group}1", "group_id": group, **sauce} for group in "ab"])

    project.metadata = model.metadata
    text = project.migrate().text
    assert "    op.install_simsql()\n" in text
    assert "simsql.sqlalchemy.Fingerprint()" in text
    backfill("recipes", empty_database)
    write_recipes(model, engine)
    with Session(engine) as session:
        found = session.execute(near(model.fingerprint, text=sauce, scope={"group_id": "b"})).all()
        assert [(recipe.id.strip(), distance) for recipe, distance in found] == [("b1", 0)]
        claimed = claim(model.fingerprint, text=sauce, scope={"group_id": "a"})
        assert session.execute(claimed).one().distance == 0
        session.execute(update(model).values(description=func.lower(OLD)))
        assert session.scalars(select(model.fingerprint)).all() == [None] * 3
    project.check()
    project.downgrade("0001")
    assert objects_of_database(engine) == before
    project.downgrade()
    project.execute("DROP TABLE alembic_version")
    assert objects_of_database(engine) == empty

    # Its tests run on SQLite, with the same migrations.
    engine.dispose()
    project.engine = create_engine(f"sqlite:///{tmp_path / 'tests.db'}")
    project.upgrade()
    project.check()
    write_recipes(model, project.engine)
    project.downgrade()
    project.engine.dispose()


class Base(DeclarativeBase):
    pass


class Post(Base):
    __tablename__ = "post"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    text: Mapped[str]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="text"))
    __table_args__ = (SimhashIndex("fingerprint", distance=7),)


class Crud:
    """A layer that never loads what it changes."""

    def __init__(self, model: type[Any], session: AsyncSession) -> None:
        self.model, self.session = model, session

    async def create(self, **values: Any) -> int:
        item = self.model(**values)
        self.session.add(item)
        await self.session.commit()
        return item.id

    async def update(self, values: dict[str, Any], **where: Any) -> None:
        await self.session.execute(update(self.model).filter_by(**where).values(**values))
        await self.session.commit()

    async def update_many(self, rows: list[dict[str, Any]]) -> None:
        await self.session.execute(update(self.model), rows)
        await self.session.commit()

    async def upsert(self, **values: Any) -> None:
        added = upsert(self.model).values(**values)
        changed = {name: added.excluded[name] for name in values if name != "id"}
        await self.session.execute(added.on_conflict_do_update(index_elements=["id"], set_=changed))
        await self.session.commit()


async def use_posts(session: AsyncSession, database: Engine) -> None:
    """Write posts in every way of the layer: no fingerprint is of an old text, and a backfill adds the rest."""

    async def states() -> list[tuple[str, bool | None]]:
        """The text of each post, and whether the fingerprint is that of the text; None without one."""
        rows = (await session.execute(select(Post.text, Post.fingerprint).order_by(Post.id))).all()
        await session.rollback()
        return [(text, None if made is None else made == simhash(text)) for text, made in rows]

    posts = Crud(Post, session)
    first, second, third = [await posts.create(title="a", text=OLD) for _ in range(3)]
    await posts.update({"title": "b"}, id=first)
    assert await states() == 3 * [(OLD, True)]
    await posts.update({"text": NEW}, id=first)
    await posts.update_many([{"id": second, "text": NEW}])
    await posts.upsert(id=third, title="c", text=NEW)
    assert await states() == 3 * [(NEW, None)]
    # An upsert that adds a row computes its fingerprint.
    await posts.upsert(id=4, title="d", text=OLD)
    assert (await states())[3] == (OLD, True)
    await posts.update({"text": func.upper(Post.text)}, id=4)
    assert (await states())[3] == (OLD.upper(), None)
    backfill("post", database)
    assert {state for _, state in await states()} == {True}
    found = (await session.execute(near(Post.fingerprint, text=NEW))).all()
    assert sorted(post.id for post, _ in found) == [first, second, third]
    assert (await session.execute(claim(Post.fingerprint, text=OLD))).one().distance == 0
    await session.rollback()


def test_an_asynchronous_service_that_only_updates(empty_database: Engine, tmp_path: Path) -> None:
    url = empty_database.url.difference_update_query(["client_encoding"])
    engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
    project = Project(tmp_path / "project", empty_database, Base.metadata)

    async def with_alembic(work: Callable[[], Any]) -> None:
        """Run a command of Alembic as an asynchronous env.py does."""

        def in_connection(connection: Connection) -> None:
            project.engine = SimpleNamespace(connect=lambda: nullcontext(connection))
            work()

        async with engine.connect() as connection:
            await connection.run_sync(in_connection)

    async def develop() -> None:
        await with_alembic(project.migrate)
        async with AsyncSession(engine, expire_on_commit=False) as session:
            await use_posts(session, empty_database)
        await with_alembic(project.check)
        await with_alembic(project.downgrade)
        await engine.dispose()

    before = objects_of_database(empty_database)
    asyncio.run(develop())
    project.engine = empty_database
    project.execute("DROP TABLE alembic_version")
    assert objects_of_database(empty_database) == before
