"""The tables."""

from datetime import datetime

from simsql.sqlalchemy import Fingerprint, SimhashIndex
from sqlalchemy import DateTime, ForeignKey, MetaData, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """All models."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Author(Base):
    """Somebody who writes."""

    __tablename__ = "author"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    articles: Mapped[list["Article"]] = relationship(back_populates="author")


class Article(Base):
    """What an author has written."""

    __tablename__ = "article"
    __table_args__ = (SimhashIndex("fingerprint", distance=7),)

    id: Mapped[int] = mapped_column(primary_key=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("author.id", ondelete="CASCADE"), index=True)
    title: Mapped[str]
    body: Mapped[str]
    posted_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    author: Mapped[Author] = relationship(back_populates="articles")
