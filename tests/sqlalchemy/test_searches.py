"""Searches as statements find what brute force finds, in whatever statement and on whatever entity they stand."""

from functools import partial

import oracle
import pytest
from asynchronous import each_driver, in_async_session
from sqlalchemy import (
    ForeignKey,
    Text,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, with_polymorphic

from simsql.database.bigint import from_bigint, to_bigint
from simsql.sqlalchemy import Fingerprint, SimhashIndex, claim, clusters, near, near_many, pairs

FINGERPRINTS = [*oracle.clustered(120, seed=4), -1, 2**63 - 1, None, None]
QUERIES = [0, 2**63 - 1, 2**63, 2**64 - 1, *(from_bigint(f) for f in FINGERPRINTS[40:42])]
DISTANCES = [0, 8, 64]


class Base(DeclarativeBase):
    pass


class Document(Base):
    __tablename__ = "document"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    title: Mapped[str | None] = mapped_column(Text)
    fingerprint: Mapped[int | None] = mapped_column("fp", Fingerprint())
    __table_args__ = (SimhashIndex("fp", distance=8),)
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "document"}  # noqa: RUF012


class Report(Document):
    """In a table of its own, joined; the fingerprint is in the parent's."""

    __tablename__ = "report"
    id: Mapped[int] = mapped_column(ForeignKey("document.id"), primary_key=True)
    summary: Mapped[str | None]
    __mapper_args__ = {"polymorphic_identity": "report"}  # noqa: RUF012


class Note(Document):
    """In the parent's table."""

    __mapper_args__ = {"polymorphic_identity": "note"}  # noqa: RUF012


KINDS = [Document, Report, Note]
documents = Document.__table__


@pytest.fixture
def session(session):
    rows = [{"id": n, "kind": KINDS[n % 3].__name__.lower(), "fp": u(f)} for n, f in enumerate(FINGERPRINTS)]
    session.execute(insert(documents), rows)
    session.execute(insert(Report.__table__), [{"id": row["id"]} for row in rows if row["kind"] == "report"])
    session.commit()
    return session


def u(fingerprint):
    return None if fingerprint is None else from_bigint(fingerprint)


def rows_near(query, within, kind=Document):
    """(distance, bigint, id) of every row of a kind, nearest first."""
    return sorted(
        (oracle.distance(f, query), f, n)
        for n, f in enumerate(FINGERPRINTS)
        if f is not None and oracle.distance(f, query) <= within and kind in (Document, KINDS[n % 3])
    )


def ids_near(query, within, kind=Document):
    return sorted(n for _, _, n in rows_near(query, within, kind))


def distinct_near(query, within):
    return [(from_bigint(f), d) for f, d in oracle.near(FINGERPRINTS, to_bigint(query), within)]


def test_near_equals_brute_force(session):
    """Of an entity, of an alias of it, of its subclasses; of a column, of an alias of its table."""
    alias = documents.alias("other")
    for query in QUERIES:
        for within in DISTANCES:
            for kind in KINDS:
                for entity in (kind, aliased(kind)):
                    found = session.execute(near(entity.fingerprint, query, within)).all()
                    expected = rows_near(query, within, kind)
                    assert [(d, to_bigint(e.fingerprint), e.id) for e, d in found] == expected
                    assert {type(e) for e, _ in found} <= ({kind} if kind is not Document else set(KINDS))
            for column in (documents.c.fp, alias.c.fp):
                assert session.execute(near(column, query, within)).all() == distinct_near(query, within)
    assert session.execute(near(Document.fingerprint, None, 64)).all() == []
    assert session.execute(near(documents.c.fp, 0)).all() == distinct_near(0, 8)  # the distance of the index


def test_the_condition_equals_brute_force(session):
    polymorphic = with_polymorphic(Document, [Report])
    subquery = select(documents).where(documents.c.id > 20).subquery()
    for query in QUERIES:
        for within in (0, 8, 64):
            for entity in (*KINDS, *map(aliased, KINDS)):
                kind = entity if isinstance(entity, type) else inspect(entity).class_
                found = session.scalars(select(entity.id).where(entity.fingerprint.near(query, within))).all()
                assert sorted(found) == ids_near(query, within, kind)
            expected = ids_near(query, within)
            loaded = session.scalars(
                select(polymorphic).where(polymorphic.fingerprint.near(query, distance=within))
            )
            assert sorted(document.id for document in loaded) == expected
            core = select(documents.c.id).where(documents.c.fp.near(query, within))
            assert sorted(session.scalars(core)) == expected
            inner_blocks = select(subquery.c.id).where(subquery.c.fp.near(query, within))
            assert sorted(session.scalars(inner_blocks)) == [n for n in expected if n > 20]
            beside = select(Document.id).where(or_(Document.fingerprint.near(query, within), Document.id == 20))
            assert sorted(session.scalars(beside)) == sorted({*expected, 20})
            others = select(Document.id).where(~Document.fingerprint.near(query, within))
            left = [n for n, f in enumerate(FINGERPRINTS) if f is not None and n not in expected]
            assert sorted(session.scalars(others)) == (left if expected else sorted(range(len(FINGERPRINTS))))
    assert session.scalars(select(Document).where(Document.fingerprint.near(None, 64))).all() == []


def test_a_query_may_be_an_expression(session):
    given = select(Document.id).where(Document.fingerprint.near(bindparam("query"), 3))
    assert sorted(session.scalars(given, {"query": 2**64 - 1})) == ids_near(2**64 - 1, 3)
    of_a_row = select(Document.fingerprint).where(Document.id == 40).scalar_subquery()
    found = session.scalars(select(Document.id).where(Document.fingerprint.near(of_a_row, 3)))
    assert sorted(found) == ids_near(QUERIES[4], 3)
    assert session.execute(near(documents.c.fp, of_a_row, 3)).all() == distinct_near(QUERIES[4], 3)


def test_rows_that_are_near_are_updated_and_deleted(session):
    query, expected = QUERIES[4], ids_near(QUERIES[4], 8)
    in_memory = session.get(Document, expected[0])
    session.execute(update(Document).where(Document.fingerprint.near(query, 8)).values(title="near"))
    assert in_memory.title == "near"
    assert sorted(session.scalars(select(Document.id).where(Document.title == "near"))) == expected
    session.execute(update(documents).where(documents.c.fp.near(query, 8)).values(title="core"))
    assert sorted(session.scalars(select(Document.id).where(Document.title == "core"))) == expected
    session.execute(delete(Report.__table__))
    session.execute(delete(Document).where(Document.fingerprint.near(query, 8)))
    left = sorted(session.scalars(select(Document.id)))
    assert left == sorted(set(range(len(FINGERPRINTS))) - set(expected))
    session.rollback()


def test_the_whole_table_equals_brute_force(session):
    for within in (0, 3, 8):
        found = session.execute(pairs(Document.fingerprint, within)).all()
        assert sorted((to_bigint(a), to_bigint(b), d) for a, b, d in found) == oracle.pairs(FINGERPRINTS, within)
        assert session.execute(pairs(documents.c.fp, within)).all() == found
        found = session.execute(clusters(documents.c.fp, within)).all()
        members = oracle.clusters(FINGERPRINTS, within)
        assert [(to_bigint(c), to_bigint(f)) for c, f in found] == members
        cluster_of = {f: c for c, f in members}
        rows = sorted((cluster_of[f], f, n) for n, f in enumerate(FINGERPRINTS) if f in cluster_of)
        found = session.execute(clusters(Document.fingerprint, within)).all()
        assert [(to_bigint(c), to_bigint(d.fingerprint), d.id) for c, d in found] == rows
        notes = session.execute(clusters(Note.fingerprint, within)).all()
        assert [n.id for _, n in notes] == [n for _, _, n in rows if KINDS[n % 3] is Note]


@pytest.mark.parametrize("within", [0, 8, None])
def test_many_queries_find_what_one_query_finds(session, within):
    queries = [*QUERIES, None, QUERIES[0]]
    found = session.execute(near_many(documents.c.fp, queries, within)).all()
    one_by_one = [
        (query, *match) for query in set(QUERIES) for match in session.execute(near(documents.c.fp, query, within))
    ]
    assert sorted(map(tuple, found)) == sorted(map(tuple, one_by_one))
    found = session.execute(near_many(Report.fingerprint, queries, within)).all()
    within = 8 if within is None else within
    assert sorted((query, d, report.id) for query, report, d in found) == sorted(
        (query, d, n) for query in set(QUERIES) for d, _, n in rows_near(query, within, Report)
    )


def test_the_statement_around_a_search_scans_the_function_and_an_index(session):
    number = func.generate_series(1000, 21_000).column_valued("number")
    random = select(number, literal("document"), func.hashint8extended(number, 7))
    session.execute(insert(documents).from_select(["id", "kind", "fp"], random))
    session.execute(text("ANALYZE document"))
    statements = {
        "where": select(Document).where(Document.fingerprint.near(5, 3)),
        "or": select(Document).where(or_(Document.fingerprint.near(5, 3), Document.id == 7)),
        "entity": near(Document.fingerprint, 5, 3),
        "subclass": near(Note.fingerprint, 5, 3),
        "update": update(Document).where(Document.fingerprint.near(5, 3)).values(title="x"),
        "delete": delete(Document).where(Document.fingerprint.near(5, 3)),
    }
    for name, statement in statements.items():
        compiled = statement.compile(session.connection(), compile_kwargs={"literal_binds": True})
        lines = session.connection().exec_driver_sql(f"EXPLAIN {compiled}").scalars().all()
        plan = "\n".join(lines)
        assert "Function Scan on near" in plan, f"{name}: {plan}"
        assert "ix_document_fp" in plan, f"{name}: {plan}"
        assert "Seq Scan on document" not in plan, f"{name}: {plan}"


def test_what_is_no_column_is_refused(session):
    both = select(func.coalesce(documents.c.fp, 0).label("fp")).subquery()
    for expression in (func.coalesce(documents.c.fp, 0), both.c.fp, literal(5, Fingerprint())):
        with pytest.raises(ArgumentError, match="is not a column of one table"):
            near(expression, 5)
        with pytest.raises(ArgumentError, match="is not a column of one table"):
            literal(5, Fingerprint()).near(5)
    with pytest.raises(ArgumentError, match="scope: table document has no column 'tenant'; it has id, kind"):
        near(Document.fingerprint, 5, scope={"tenant": 1})
    with pytest.raises(ArgumentError, match="scope: table document has no column 'tenant'"):
        Document.fingerprint.near(5, scope={"tenant": 1})


def test_a_search_of_texts_names_the_column_of_fingerprints():
    for search in (near, partial(near, text="some text"), claim, pairs, clusters):
        arguments = [5] if search in (near, claim) else []
        for column in (Document.title, aliased(Note).title, documents.c.title):
            with pytest.raises(
                ArgumentError, match=r"document.title is a column of texts.*: search for document.fp"
            ):
                search(column, *arguments)
    with pytest.raises(ArgumentError, match="its table has no Fingerprint column"):
        near(Report.summary, 5)


def test_postgresql_says_what_else_is_wrong(session):
    with pytest.raises(DBAPIError, match="report has no simhash index"):
        session.execute(near(Report.__table__.c.id, 0))


class Routed(Session):
    """A session that chooses the engine by the entity of a statement, as many an application has it."""

    def get_bind(self, mapper=None, **options):
        assert mapper is not None, f"which entity? {options}"
        assert mapper.local_table in (documents, Report.__table__), mapper
        return self.bind


def statements_of(entity):
    """Every statement and condition there is, of the entity or a column of a table."""
    column = getattr(entity, "fingerprint", None) if entity is not documents else documents.c.fp
    return [
        pairs(column, 8),
        near(column, QUERIES[4], 8),
        near_many(column, QUERIES, 8),
        clusters(column, 8),
        select(column).where(column.near(QUERIES[4], 8)),
        select(literal(1)).where(column.near(QUERIES[4], 8)),
        select(func.count()).select_from(pairs(column, 8).subquery()),
        select(column.hamming_distance(5)),
    ]


@pytest.mark.parametrize("entity", [*KINDS, aliased(Document), documents], ids=str)
def test_a_session_with_several_engines_finds_the_one_of_the_table(session, database, entity):
    by_class, by_table = Session(binds={Document: database}), Session(binds={documents: database})
    with by_class, by_table, Routed(database) as routed:
        for statement in statements_of(entity):
            rows = sorted((_plain(row) for row in session.execute(statement)), key=repr)
            others = [by_class, by_table] + ([routed] if entity is not documents else [])
            for other in others:
                assert sorted((_plain(row) for row in other.execute(statement)), key=repr) == rows


@pytest.mark.pooled
@each_driver
def test_async_sessions_run_the_same_statements(session: Session, database_url, driver):
    fingerprint = 2**63 + 5

    async def search(asynchronous):
        for statement in (
            near(Document.fingerprint, QUERIES[4], 8),
            near(documents.c.fp, QUERIES[4], 8),
            near(documents.c.fp, None),
            near_many(documents.c.fp, [*QUERIES, None], 3),
            pairs(Document.fingerprint, 3),
            clusters(documents.c.fp, 3),
            select(Document.id).where(Note.fingerprint.near(QUERIES[5], 8)),
            select(Document.id, Document.fingerprint.hamming_distance(2**64 - 1)),
        ):
            found = [tuple(_plain(row)) for row in await asynchronous.execute(statement)]
            expected = [tuple(_plain(row)) for row in session.execute(statement)]
            assert sorted(found, key=repr) == sorted(expected, key=repr)
        asynchronous.add(Document(id=1000, fingerprint=fingerprint))
        await asynchronous.flush()
        (match,) = (await asynchronous.execute(near(Document.fingerprint, fingerprint, 0))).all()
        assert (match[0].id, match[0].fingerprint, match.distance) == (1000, fingerprint, 0)

    in_async_session(database_url, driver, search)


def _plain(row):
    return [value.id if isinstance(value, Document) else value for value in row]
