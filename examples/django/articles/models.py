"""Authors and articles."""

from django.db import models
from simsql.django import SimhashField, SimhashIndex, SimhashQuerySet


class Author(models.Model):
    """Who writes."""

    name = models.CharField(max_length=100)


class Article(models.Model):
    """What an author has posted."""

    author = models.ForeignKey(Author, models.CASCADE, related_name="articles")
    title = models.CharField(max_length=200)
    body = models.TextField()
    posted_at = models.DateTimeField(auto_now_add=True)
    fingerprint = SimhashField(source="body")

    objects = SimhashQuerySet.as_manager()

    class Meta:
        """The indexes."""

        indexes = [SimhashIndex("fingerprint", distance=7)]
