"""Models and migrations of Django: put `simsql.django` into INSTALLED_APPS.

SimhashField(source="body")                   a bigint column, unsigned in Python, that follows its source
SketchField(source="body")                    64 MinHashes beside it, for near(..., similarity=0.6)
SimhashIndex("fingerprint", distance=7)       in Meta.indexes: makemigrations writes and reverses it
SimhashQuerySet.as_manager()                  Article.objects.near(...), .similar(...), .claim(...)
filter(fingerprint__near=Near(text=...))      the same search as a condition
InstallSimsql, BuildSimhashIndex, KeepSimhashIndex        operations of migrations
engine_of("default")                          Django's connection for the functions of simsql.database
"""

from simsql.django.connection import engine_of
from simsql.django.fields import SimhashField, SketchField
from simsql.django.index import SimhashIndex
from simsql.django.operations import BuildSimhashIndex, InstallSimsql, KeepSimhashIndex
from simsql.django.queries import HammingDistance, Near, SimhashQuerySet, search_index

__all__ = [
    "BuildSimhashIndex",
    "HammingDistance",
    "InstallSimsql",
    "KeepSimhashIndex",
    "Near",
    "SimhashField",
    "SimhashIndex",
    "SimhashQuerySet",
    "SketchField",
    "engine_of",
    "search_index",
]
