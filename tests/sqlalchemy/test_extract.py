"""Fingerprint(extract=...): the value of the text that a function of the application makes of HTML or JSON."""

from typing import Any

import pytest
from library.texts import other_text, text_of_blocks
from sqlalchemy import Text, insert, text
from sqlalchemy.dialects.postgresql import JSON, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from simsql import simhash, sketch, visible_text
from simsql.database import SearchIndex, recipes
from simsql.errors import UsageError
from simsql.fingerprint import simhash_parts
from simsql.sqlalchemy import Fingerprint, SimhashIndex, Sketch, near, similar

ZEN = "Beautiful is better than ugly. Explicit is better than implicit. Simple is better than complex."
OTHER = "Sparse is better than dense. Readability counts."


class Base(DeclarativeBase):
    pass


class Post(Base):
    __tablename__ = "post"
    id: Mapped[int] = mapped_column(primary_key=True)
    blocks: Mapped[Any] = mapped_column(JSONB, nullable=True)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="blocks", extract=text_of_blocks))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="blocks", extract=text_of_blocks))
    __table_args__ = (SimhashIndex("fingerprint", distance=7, sources="blocks"),)


class Letter(Base):
    """Of two sources, JSON and HTML."""

    __tablename__ = "letter"
    id: Mapped[int] = mapped_column(primary_key=True)
    html: Mapped[str] = mapped_column(Text)
    more: Mapped[Any] = mapped_column(JSON, nullable=True)
    fingerprint: Mapped[int | None] = mapped_column(
        Fingerprint(source={"html": 1, "more": 1}, extract=visible_text)
    )
    __table_args__ = (SimhashIndex("fingerprint", distance=7, sources={"html": 1, "more": 1}),)


def blocks(words):
    return [{"type": "rule"}, {"type": "text", "text": words}]


def values(session, post):
    session.refresh(post)
    return post.fingerprint, post.sketch


def test_the_unit_of_work_and_statements(session):
    post = Post(blocks=blocks(ZEN))
    session.add_all([post, Post(blocks=None)])
    session.flush()
    assert values(session, post) == (simhash(ZEN), sketch(ZEN))
    post.blocks = [*blocks(ZEN), {"type": "rule"}]
    session.flush()
    assert values(session, post) == (simhash(ZEN), sketch(ZEN))
    post.blocks = blocks(OTHER)
    session.flush()
    assert values(session, post) == (simhash(OTHER), sketch(OTHER))
    session.execute(insert(Post).values(id=7, blocks=blocks(ZEN)))
    assert values(session, session.get(Post, 7)) == (simhash(ZEN), sketch(ZEN))


def test_two_sources(session):
    letter = Letter(html=f"<b>{ZEN}</b>", more="<p>more")
    session.add(letter)
    session.flush()
    both = simhash_parts([(ZEN, 1), ("more", 1)])
    assert letter.fingerprint == both
    session.execute(text("UPDATE letter SET more = '\"other\"'"))
    session.refresh(letter)
    assert letter.fingerprint is None
    session.execute(text("UPDATE letter SET more = '\"more\"'"))
    session.commit()
    assert SearchIndex(session.get_bind(), "letter").backfill().written == 1
    session.refresh(letter)
    assert letter.fingerprint == both
    found = near(Letter.fingerprint, text={"html": ZEN, "more": "more"})
    assert session.scalars(found).all() == [letter]


def test_searches_and_a_backfill(session):
    post = Post(blocks=blocks(ZEN))
    session.add(post)
    session.commit()
    engine = session.get_bind()
    assert session.scalars(near(Post.fingerprint, text=ZEN, similarity=0.9)).all() == [post]
    assert similar(session, Post.fingerprint, ZEN) == [(post, 1.0)]
    session.execute(
        text("UPDATE post SET blocks = jsonb_set(blocks, '{1,text}', to_jsonb(CAST(:t AS text)))"), {"t": OTHER}
    )
    session.commit()
    with pytest.raises(
        UsageError, match=r"library.texts.text_of_blocks returns .* SearchIndex\(.*text_of_blocks\)"
    ):
        SearchIndex(engine, "post").backfill(sketch_column="sketch")
    index = SearchIndex(engine, "post", extract=text_of_blocks)
    assert index.backfill(sketch_column="sketch").written == 1
    assert values(session, post) == (simhash(OTHER), sketch(OTHER))
    assert [row.similarity for row in index.similar(OTHER, sketch_column="sketch")] == [1.0]


def test_the_index_names_the_function(session, monkeypatch):
    monkeypatch.setattr(recipes, "_REMEMBER", 0)
    named = "words12-log-1 of library.texts.text_of_blocks"
    assert SimhashIndex.of(Post.__table__)[0].recipe == named
    registered = "SELECT recipe FROM simsql.registry WHERE table_id = 'post'::regclass"
    assert session.scalar(text(registered)) == named
    session.execute(
        text("SELECT simsql.alter_index('post', recipe => 'words12-log-1 of library.texts.other_text')")
    )
    session.add(Post(blocks=blocks(ZEN)))
    with pytest.raises(UsageError, match=r"has recipe .*other_text, but the model .*text_of_blocks"):
        session.flush()


def test_wrong_functions():
    with pytest.raises(UsageError, match="every process can import"):
        Fingerprint(source="body", extract=lambda value: value)
    assert other_text([]) == "[]"
