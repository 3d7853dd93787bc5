"""Models with fingerprints: of one text, of two with weights, beside a sketch, in a scope, not of texts."""

from django.db import models

from library.texts import text_of_blocks
from simsql import visible_text
from simsql.django import SimhashField, SimhashIndex, SimhashQuerySet, SketchField


class Author(models.Model):
    name = models.CharField(max_length=100)


class Article(models.Model):
    author = models.ForeignKey(Author, models.CASCADE, null=True, related_name="articles")
    title = models.CharField(max_length=100, default="")
    body = models.TextField(null=True)
    fingerprint = SimhashField(source="body")
    objects = SimhashQuerySet.as_manager()

    class Meta:
        indexes = [SimhashIndex("fingerprint", distance=7)]


class Headline(Article):
    class Meta:
        proxy = True


class Essay(Article):
    pages = models.IntegerField(default=1)


class Memo(models.Model):
    """With a plain manager."""

    title = models.CharField(max_length=100)
    text = models.TextField(db_column="The Text")
    fingerprint = SimhashField(source={"title": 3, "text": 1}, db_column="Print")

    class Meta:
        db_table = "Odd memo's table"
        indexes = [SimhashIndex("fingerprint")]


class Page(models.Model):
    """With a sketch beside the fingerprint."""

    body = models.TextField(null=True)
    fingerprint = SimhashField(source="body")
    sketch = SketchField(source="body", db_column="Sketched")
    plain = SimhashField()
    objects = SimhashQuerySet.as_manager()

    class Meta:
        indexes = [SimhashIndex("fingerprint", distance=40)]


class Leaf(Page):
    number = models.IntegerField(default=1)


class Note(models.Model):
    author = models.ForeignKey(Author, models.CASCADE)
    language = models.CharField(max_length=2, default="en")
    body = models.TextField()
    fingerprint = SimhashField(source="body")
    objects = SimhashQuerySet.as_manager()

    class Meta:
        indexes = [SimhashIndex("fingerprint", distance=7, scope=["author", "language"], storage="expression")]


class Picture(models.Model):
    file = models.CharField(max_length=100, default="")
    hash = SimhashField(recipe="phash64")
    objects = SimhashQuerySet.as_manager()

    class Meta:
        indexes = [SimhashIndex("hash", distance=8)]


class Post(models.Model):
    """With texts in the blocks of an editor."""

    blocks = models.JSONField(null=True)
    fingerprint = SimhashField(source="blocks", extract=text_of_blocks)
    sketch = SketchField(source="blocks", extract=text_of_blocks)
    objects = SimhashQuerySet.as_manager()

    class Meta:
        indexes = [SimhashIndex("fingerprint", distance=7)]


class Letter(models.Model):
    """With HTML."""

    html = models.TextField(null=True)
    fingerprint = SimhashField(source="html", extract=visible_text)
    objects = SimhashQuerySet.as_manager()

    class Meta:
        indexes = [SimhashIndex("fingerprint", distance=7)]
