"""Writes that bypass the unit of work, as docs/reference/sqlalchemy.md lists them: computed, NULL or unchanged.

With the trigger of simsql.clear_on_change, no fingerprint stays unchanged.
"""

import re
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, func, insert, literal, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from simsql import simhash, sketch
from simsql.sqlalchemy import Fingerprint, Sketch

PAGE = Path(__file__).parents[2] / "docs/reference/sqlalchemy.md"
WORDS = "Errors should never pass silently. Unless explicitly silenced."
OTHER = "In the face of ambiguity, refuse the temptation to guess."


class Base(DeclarativeBase):
    metadata = MetaData()


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None] = mapped_column(server_default=OTHER)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"))


class Page(Base):
    __tablename__ = "page"
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str | None]
    body: Mapped[str | None] = mapped_column(onupdate=OTHER)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))


articles = Article.__table__


def add(session):
    article = Article(id=1, body=WORDS)
    session.add(article)
    session.flush()
    return article


def assign_expression(session):
    add(session).body = literal(OTHER) + ""


def assign_expression_to_new(session):
    session.add(Article(id=1, body=func.concat(OTHER)))


def leave_to_default(session):
    session.add(Article(id=1))


def core_insert(session):
    session.execute(insert(articles).values(id=1, body=OTHER))


def bulk_insert(session):
    session.execute(insert(Article), [{"id": 1, "body": OTHER}])


def bulk_save(session):
    session.bulk_save_objects([Article(id=1, body=OTHER)])


def several_values(session):
    session.execute(insert(articles).values([{"id": 1, "body": OTHER}]))


def several_values_of_class(session):
    session.execute(insert(Article).values([{"id": 2, "body": WORDS}, {"id": 1, "body": OTHER}]))
    session.execute(text("DELETE FROM article WHERE id = 2"))


def insert_expression(session):
    session.execute(insert(articles).values(id=1, body=func.concat(OTHER)))


def insert_from_select(session):
    session.execute(insert(articles).from_select(["id", "body"], select(literal(1), literal(OTHER))))


def raw_insert(session):
    session.execute(text("INSERT INTO article (id, body) VALUES (1, :body)"), {"body": OTHER})


def core_update(session):
    add(session)
    session.execute(update(articles).values(body=OTHER))


def orm_update(session):
    add(session)
    session.execute(update(Article).values(body=OTHER))


def bulk_update(session):
    add(session)
    session.execute(update(Article), [{"id": 1, "body": OTHER}])


def on_conflict(session):
    add(session)
    row = upsert(articles).values(id=1, body=OTHER)
    session.execute(row.on_conflict_do_update(index_elements=["id"], set_={"body": row.excluded.body}))


def raw_update(session):
    add(session)
    session.execute(text("UPDATE article SET body = :body"), {"body": OTHER})


def both_by_hand(session):
    add(session)
    session.execute(update(articles).values(body=OTHER, fingerprint=simhash(OTHER), sketch=sketch(OTHER)))


# Each line of the list, and the fingerprint after the write: that of the new text, NULL, or the old one.
LINES = {
    "`article.body = func.lower(...)`: an SQL expression in an existing object": (assign_expression, "NULL"),
    "`Article(body=func.lower(...))`: an SQL expression in a new object": (assign_expression_to_new, "NULL"),
    "a source that a server default or a trigger fills": (leave_to_default, "NULL"),
    "Core `insert()`, with one row or a list of parameters": (core_insert, "computed"),
    "`session.execute(insert(Article), [...])`": (bulk_insert, "computed"),
    "`session.bulk_save_objects()`, `bulk_insert_mappings()`": (bulk_save, "computed"),
    "`insert(table).values([...])`, with several rows": (several_values, "computed"),
    "`insert(Article).values([...])`, with several rows": (several_values_of_class, "computed"),
    "`insert().values(body=func.lower(...))`, also as one of several rows": (insert_expression, "NULL"),
    "`insert().from_select()`": (insert_from_select, "NULL"),
    "`INSERT`, `COPY` from psql and other programs": (raw_insert, "NULL"),
    "Core `update()`": (core_update, "unchanged"),
    "`session.execute(update(Article)...)`": (orm_update, "unchanged"),
    "`session.execute(update(Article), [...])`, `bulk_update_mappings()`": (bulk_update, "unchanged"),
    "`insert().on_conflict_do_update()`": (on_conflict, "unchanged"),
    "`UPDATE`, `MERGE` from psql and other programs": (raw_update, "unchanged"),
    "any of these that also writes the fingerprint": (both_by_hand, "as written"),
}
KEPT = {"NULL": None, "unchanged": WORDS, "computed": OTHER, "as written": OTHER}
CLEARED = KEPT | {"unchanged": None}


@pytest.mark.parametrize("with_trigger", [False, True])
def test_each_line_of_the_list_is_true(session_of, with_trigger):
    session = session_of(Base)
    if with_trigger:
        for column in ("fingerprint", "sketch"):
            session.execute(text(f"SELECT simsql.clear_on_change('article', '{column}', ARRAY['body'])"))
    for line, (write, outcome) in LINES.items():
        with session.begin_nested() as savepoint:
            write(session)
            session.flush()
            row = session.execute(text("SELECT body, fingerprint, sketch FROM article")).one()
            words = (CLEARED if with_trigger else KEPT)[outcome]
            values = (None, None) if words is None else (_bigint(simhash(words)), _bigint(sketch(words)))
            assert row == (OTHER, *values), line
            savepoint.rollback()
        session.expunge_all()


def _bigint(fingerprint):
    return fingerprint - 2**64 if fingerprint >= 2**63 else fingerprint


def test_an_insert_that_is_executed_for_many_computes_each(session_of):
    session = session_of(Base)
    texts = [WORDS, OTHER, "?!", None]
    rows = [[{"id": 10 * way + n, "body": body} for n, body in enumerate(texts)] for way in range(4)]
    session.execute(insert(articles), rows[0])
    session.execute(insert(Article), rows[1])
    session.execute(insert(articles).values(rows[2]))
    rows[3][0]["body"] = func.concat(WORDS)
    session.execute(insert(articles).values(rows[3]))
    for column, of in ((articles.c.fingerprint, simhash), (articles.c.sketch, sketch)):
        found = session.scalars(select(column).order_by(articles.c.id)).all()
        assert found == 3 * [of(WORDS), of(OTHER), None, None] + [None, of(OTHER), None, None]


def test_a_default_of_the_source_counts_where_its_column_comes_first(database):
    metadata = MetaData()
    fingerprint, body = Column("fingerprint", Fingerprint(source="body")), Column("body", Text, default=OTHER)
    with database.begin() as connection:
        for name, columns, expected in (
            ("after", [body, fingerprint], simhash(OTHER)),
            ("before", [fingerprint, body], None),
        ):
            table = Table(name, metadata, Column("id", Integer, primary_key=True), *(c._copy() for c in columns))
            table.create(connection)
            connection.execute(insert(table).values(id=1))
            assert connection.execute(select(table.c.fingerprint)).scalar_one() == expected


def test_a_default_that_the_column_has_is_left_alone(database):
    table = Table("article", MetaData(), Column("body", Text), Column("fp", Fingerprint(source="body"), default=7))
    with database.begin() as connection:
        table.create(connection)
        connection.execute(insert(table).values(body=WORDS))
        assert connection.execute(select(table.c.fp)).scalar_one() == 7


def test_an_onupdate_of_the_source_is_seen_by_the_trigger_alone(session_of):
    session = session_of(Base)
    for number, expected in ((1, simhash(WORDS)), (2, None)):
        page = Page(id=number, body=WORDS)
        session.add(page)
        session.flush()
        page.note = "read"
        session.flush()
        found = select(Page.body, Page.fingerprint).where(Page.id == number)
        assert session.execute(found).one() == (OTHER, expected)
        session.execute(text("SELECT simsql.clear_on_change('page', 'fingerprint', ARRAY['body'])"))


def test_the_page_has_the_same_list():
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {line: (without, with_trigger) for line, without, with_trigger in rows}
    for line, (_, outcome) in LINES.items():
        cleared = "NULL" if outcome == "unchanged" else outcome
        assert listed.get(line) == (outcome if outcome != "unchanged" else "unchanged: stale", cleared), line
