"""Claims, writers and clean-ups by the documented statement: is a text lost, or a near-duplicate accepted?

A trigger numbers every change of a row while the row is locked. So the numbers tell what the row to keep was like
when another one was dropped, also if a transaction that had changed it before committed only later.
"""

import contextlib
import random
from collections.abc import Sequence

import numpy as np
import psycopg
from clean_up import decide, documented_delete
from corpus import make_texts
from oracle import to_bigint
from sessions import ALL_LEVELS
from sqlalchemy import URL

from simsql import simhash
from trial.tally import Tally
from trial.workers import Connect, Job

DISTANCE = 8  # of claims

SCHEMA = """
CREATE TABLE article (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, fingerprint bigint, claimed boolean);
SELECT simsql.create_index('article', 'fingerprint', recipe => 'words12-log-1');
CREATE SEQUENCE moment;
-- The digest after a change of a row; null if it was deleted.
CREATE TABLE changed (id bigint, moment bigint DEFAULT nextval('moment'), digest bytea, PRIMARY KEY (id, moment));
CREATE TABLE dropped (
    id bigint, kept_id bigint, text_digest bytea, kept_text_digest bytea, moment bigint DEFAULT nextval('moment'));
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changed (id, digest)
    SELECT coalesce(NEW.id, OLD.id), CASE WHEN TG_OP <> 'DELETE' THEN sha256(convert_to(NEW.body, 'UTF8')) END;
    RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON article FOR EACH ROW EXECUTE FUNCTION note();
"""
# Rows that were dropped and, of these, the ones whose text, or the text to keep, was another one then, or gone.
LOST = """
SELECT count(*), count(*) FILTER (WHERE
       (SELECT c.digest FROM changed AS c WHERE c.id = d.kept_id AND c.moment < d.moment
         ORDER BY c.moment DESC LIMIT 1) IS DISTINCT FROM d.kept_text_digest
       OR (SELECT c.digest FROM changed AS c WHERE c.id = d.id AND c.moment < d.moment
            ORDER BY c.moment DESC OFFSET 1 LIMIT 1) IS DISTINCT FROM d.text_digest)
  FROM dropped AS d
"""


class Texts:
    """Connections that claim, write, decide, clean up and check, in a database of their own."""

    claimers, writers, cleaners = 4, 5, 3
    """And one that decides, and one that checks."""
    delete = documented_delete("article", keys=("id",))
    claim = "SELECT count(*) FROM simsql.claim('article', %s, %s)"

    def __init__(self, connect: Connect, seed: int, tally: Tally) -> None:
        self.connect = connect
        self.tally = tally
        self._chance = random.Random(f"{seed} texts")
        texts = list(make_texts(seed, families=0, alone=200).values())
        self._loose, self._claimed = texts[:120], texts[120:]

    def prepare(self) -> None:
        with contextlib.closing(self.connect()) as connection:
            connection.execute(SCHEMA)
            for _ in range(300):
                self._insert(connection, _edit(self._chance, self._loose), claimed=False)
            self._url = URL.create(
                "postgresql",
                connection.info.user,
                database=connection.info.dbname,
                query={"host": connection.info.host, "port": str(connection.info.port)},
            )
            decide(self._url, "article")

    def jobs(self) -> dict[str, tuple[Connect, Job]]:
        jobs = [self._claim] * self.claimers + [self._write] * self.writers + [self._clean_up] * self.cleaners
        jobs += [self._decide, self._check]
        return {f"texts {number}: {job.__name__}": (self.connect, job) for number, job in enumerate(jobs)}

    def check(self) -> None:
        with contextlib.closing(self.connect()) as connection:
            self._check(connection, random.Random())

    def _claim(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """Insert a text, or edit one that was claimed, unless there is a near one. Delete one now and then."""
        text = _edit(chance, self._claimed)
        ids = connection.execute("SELECT id FROM article WHERE claimed ORDER BY random() LIMIT 1").fetchone()
        if ids and chance.random() < 0.3:
            connection.execute("DELETE FROM article WHERE id = %s", ids)
        connection.execute("BEGIN")
        if connection.execute(self.claim, [to_bigint(simhash(text)), DISTANCE]).fetchone() != (0,):
            self.tally.operation("texts: claims refused")
        elif ids and chance.random() < 0.3:
            self._update(connection, text, ids, claimed=True)
            self.tally.operation("texts: claims accepted")
        else:
            self._insert(connection, text, claimed=True)
            self.tally.operation("texts: claims accepted")
        self._end(connection, chance)

    def _write(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """Insert near-duplicates, edit and delete, mostly rows with a decision."""
        ids = connection.execute(
            "SELECT CASE WHEN random() < 0.7 THEN kept_id ELSE id END FROM decisions ORDER BY random() LIMIT 3"
        ).fetchall()
        connection.execute("BEGIN")
        for row in ids[: chance.randint(1, 3)]:
            how = chance.choice(["insert", "insert", "insert", "edit", "touch", "delete"])
            if how == "insert":
                self._insert(connection, _edit(chance, self._loose), claimed=False)
            elif how == "edit":
                self._update(connection, _edit(chance, self._loose), row, claimed=False)
            elif how == "touch":
                connection.execute("UPDATE article SET claimed = claimed WHERE id = %s", row)
            else:
                connection.execute("DELETE FROM article WHERE id = %s", row)
            self.tally.operation(f"texts: {how}")
        self._end(connection, chance)

    def _clean_up(self, connection: psycopg.Connection, chance: random.Random) -> None:
        self.tally.done.wait(chance.uniform(0, 0.1))
        connection.execute(f"BEGIN ISOLATION LEVEL {chance.choice(ALL_LEVELS)}")
        ids = [key for (key,) in connection.execute(self.delete)]
        connection.execute(
            "INSERT INTO dropped"
            " SELECT id, kept_id, text_digest, kept_text_digest FROM decisions WHERE id = ANY (%s)",
            [ids],
        )
        self._end(connection, chance)
        self.tally.operation("texts: clean-ups")

    def _decide(self, connection: psycopg.Connection, chance: random.Random) -> None:
        decide(self._url, "article")
        self.tally.operation("texts: decisions")
        if chance.random() < 0.2:
            connection.execute("CALL simsql.vacuum('article')")
        self.tally.done.wait(chance.uniform(0, 0.3))

    def _check(self, connection: psycopg.Connection, _: random.Random) -> None:
        found = [row[0] for row in connection.execute("SELECT fingerprint FROM article WHERE claimed")]
        values = np.array(found, dtype=np.int64).view(np.uint64)
        near = np.bitwise_count(values[:, None] ^ values) <= DISTANCE
        pairs = (int(near.sum()) - len(values)) // 2
        self.tally.find(self.tally.wrong, "near-duplicates that were claimed", pairs, "among texts")
        dropped, lost = connection.execute(LOST).fetchone() or (0, 0)
        self.tally.checks["texts dropped"] = dropped
        self.tally.find(self.tally.lost, "texts", lost, "dropped without a text to keep")
        self.tally.done.wait(0.2)

    def _end(self, connection: psycopg.Connection, chance: random.Random) -> None:
        self.tally.done.wait(chance.choice([0, 0.001, 0.02]))
        connection.execute(chance.choices(["COMMIT", "ROLLBACK"], [5, 1])[0])

    def _insert(self, connection: psycopg.Connection, text: str, *, claimed: bool) -> None:
        connection.execute(
            "INSERT INTO article (body, fingerprint, claimed) VALUES (%s, %s, %s)",
            [text, to_bigint(simhash(text)), claimed],
        )

    def _update(self, connection: psycopg.Connection, text: str, row: Sequence[int], *, claimed: bool) -> None:
        connection.execute(
            "UPDATE article SET body = %s, fingerprint = %s, claimed = %s WHERE id = %s",
            [text, to_bigint(simhash(text)), claimed, *row],
        )


def _edit(chance: random.Random, texts: list[str]) -> str:
    """Return one of the texts with up to three other words."""
    words = chance.choice(texts).split()
    for _ in range(chance.randrange(4)):
        words[chance.randrange(len(words))] = chance.choice(words)
    return " ".join(words)
