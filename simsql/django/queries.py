"""Searches: the lookup `near`, expressions, and the queryset, which also writes fingerprints with their texts."""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from django.db import DEFAULT_DB_ALIAS, connections, models, transaction
from django.db.models.expressions import Col, Expression, F, Func, Value
from django.db.models.functions import Coalesce
from django.db.models.lookups import LessThanOrEqual, Lookup

from simsql.arrays.checks import most_rows
from simsql.database.bigint import to_bigint
from simsql.database.index_spec import agreed_recipe, other_recipes
from simsql.database.query import NOT_GIVEN, Query, QueryOptions, RowOptions, RowQuery, Text, compared_source
from simsql.database.similar import SIMILARITY, SimilarQuery, similar_texts
from simsql.database.sources import Extract, text_of, text_parts
from simsql.django.connection import check_database, django_errors, engine_of
from simsql.django.fields import SimhashField, as_written, compute_ahead, followers, followers_in, sketch_of
from simsql.errors import UsageError
from simsql.fingerprint import Recipe, compares_features, sketch, sketch_distance

if TYPE_CHECKING:
    from simsql.database import SearchIndex


class HammingDistance(Func):
    """The number of bits, 0 to 64, in which two fingerprints differ; NULL if one is NULL.

    Takes names of fields, fingerprints in [0, 2**64) and expressions.
    """

    function = "simsql.hamming_distance"
    arity = 2
    output_field = models.IntegerField()

    def __init__(self, one: Any, other: Any, **extra: Any) -> None:
        super().__init__(
            *(F(part) if isinstance(part, str) else _as_value(part) for part in (one, other)), **extra
        )


class Near(Expression):
    """What to search for: `filter(fingerprint__near=Near(text="some text", distance=7))`.

    fingerprint
        A number in [0, 2**64), an expression such as `OuterRef("fingerprint")`, or None, which matches nothing.
    text
        Instead of it, a text, or one for each source of the field by name. It is fingerprinted with the recipe of
        the field; pass `recipe` if its id is not enough.
    distance
        Between 0 and 64; by default, that of the index.
    scope
        A value for each scope field of the index, by name.
    similarity
        From 0 to 1: the text of the row must also be at least that similar to `text`, as estimated from their
        sketches. The field must have one source, and the model a `SketchField` of it.

    Raises UsageError for a distance or a similarity out of range, and unless you pass either a fingerprint or a
    text.
    """

    def __init__(
        self, fingerprint: Any = NOT_GIVEN, distance: int | None = None, **options: Unpack[RowOptions]
    ) -> None:
        self.wanted = RowQuery(fingerprint, distance, **options)
        super().__init__(output_field=models.BigIntegerField())
        self.query = None if self.wanted.text is not None else _as_value(fingerprint)
        self.scope = dict(self.wanted.scope or {})
        self.sketch: Any = None

    def for_field(self, field: SimhashField) -> "Near":
        """Return the search for the fingerprint of the text, and for values of the scope fields."""
        found, wanted = self.copy(), self.wanted
        if wanted.text is not None and self.query is None:
            found.query = _as_value(field.fingerprint(wanted.text, wanted.recipe))
        if wanted.similarity is not None:
            (source,) = compared_source(field.sources, field).names
            found.sketch = sketch_of(field)
            if found.sketch is None:
                raise UsageError(
                    f"similarity= compares sketches, and {field.model._meta.label} has none of {source!r}: add one"
                    f" to the model, SketchField(source={source!r}), and fill it with simsql_backfill"
                )
        found.scope = {name: _in_scope(field.model, name, value) for name, value in self.scope.items()}
        return found

    def get_source_expressions(self) -> list[Any]:
        """Return the fingerprint and the values of the scope."""
        return [self.query, *(value for value in self.scope.values() if hasattr(value, "resolve_expression"))]

    def set_source_expressions(self, exprs: Sequence[Any]) -> None:
        """Replace them."""
        self.query, *values = exprs
        expressions = (name for name, value in self.scope.items() if hasattr(value, "resolve_expression"))
        self.scope = {**self.scope, **dict(zip(expressions, values, strict=True))}

    def call(self, function: str, field: SimhashField, compiler: Any) -> tuple[str, list[Any]]:
        """Return a call of a search function of simsql, and its parameters."""
        table = compiler.connection.ops.quote_name(field.model._meta.db_table)
        sql, parameters = compiler.compile(self.query)
        sql, parameters = f"CAST({sql} AS bigint)", list(parameters)
        if self.wanted.text is not None:
            # PostgreSQL refuses the fingerprint if the index has another recipe.
            sql = (
                f"simsql._of_recipe({sql}, CAST(%s AS regclass), CAST(%s AS text), CAST(%s AS text),"
                " CAST(%s AS text))"
            )
            parameters += [
                table,
                field.column,
                field.recipe_id,
                other_recipes(field.recipe_id, is_named=field.names_recipe or self.wanted.recipe is not None),
            ]
        parameters.append(self.wanted.distance)
        return self._call(function, field, compiler, f"{sql}, CAST(%s AS integer)", parameters)

    def _call(
        self, function: str, field: SimhashField, compiler: Any, arguments: str, parameters: list[Any]
    ) -> tuple[str, list[Any]]:
        """Return a call with these arguments between the table and the column."""
        check_database(compiler.connection)
        table = compiler.connection.ops.quote_name(field.model._meta.db_table)
        sql = f"simsql.{function}(CAST(%s AS regclass), {arguments}, CAST(%s AS text)"
        parameters = [table, *parameters, field.column]
        if self.scope:
            pairs = []
            for scoped, value, of_value in self.scope_values(field, compiler):
                pairs.append(f"CAST(%s AS text), {value}")
                parameters += [scoped.column, *of_value]
            sql += f", pg_catalog.jsonb_build_object({', '.join(pairs)})"
        return f"{sql})", parameters

    def scope_values(self, field: SimhashField, compiler: Any) -> Iterable[tuple[Any, str, Sequence[Any]]]:
        """Yield each scope field, its value in the field's type, and the parameters."""
        for name, value in self.scope.items():
            scoped = field.model._meta.get_field(name)
            sql, parameters = compiler.compile(value)
            yield scoped, f"CAST({sql} AS {scoped.cast_db_type(compiler.connection)})", parameters


class _Similar(Near):
    """The rows whose texts are probably similar to that of a query."""

    def __init__(self, query: SimilarQuery, scope: Mapping[str, Any] | None) -> None:
        super().__init__(query.fingerprint, scope=scope)
        self.json = query.json

    def call(self, function: str, field: SimhashField, compiler: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        return self._call("similar_candidates", field, compiler, "CAST(%s AS jsonb)", [self.json])


@SimhashField.register_lookup
class NearLookup(Lookup):
    """The rows within a distance of a fingerprint or of a `Near`, answered by the simhash index."""

    lookup_name = "near"
    prepare_rhs = False

    def get_prep_lookup(self) -> Near:
        """Return the search, with the fingerprint of its text."""
        field = getattr(self.lhs, "target", None)
        if not isinstance(self.lhs, Col) or not isinstance(field, SimhashField):
            raise UsageError(f"{self.lhs} is not a SimhashField of a table, so it has no simhash index")
        wanted: Near = self.rhs if isinstance(self.rhs, Near) else Near(self.rhs)
        return wanted.for_field(field)

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        """Return one condition of an index scan, also beside OR, and conditions for the scope."""
        column, parameters = self.process_lhs(compiler, connection)
        field = self.lhs.target
        search, of_search = self.rhs.call("near", field, compiler)
        sql = f"{column} = ANY (ARRAY(SELECT n.fingerprint FROM {search} AS n))"  # noqa: S608 - composed here
        parameters = [*parameters, *of_search]
        # Rows of other scopes can have the same fingerprint, and the B-tree on the rows begins with the scope.
        for scoped, value, of_value in self.rhs.scope_values(field, compiler):
            held, _ = compiler.compile(Col(self.lhs.alias, scoped))
            sql += f" AND {held} = {value}"
            parameters += of_value
        if (sketch := self.rhs.sketch) is not None:
            held, _ = compiler.compile(Col(self.lhs.alias, sketch))
            sql += f" AND simsql.similarity({held}, CAST(%s AS bigint)) >= CAST(%s AS double precision)"
            wanted = self.rhs.wanted
            parameters += [to_bigint(wanted.sketch(sketch.source, sketch.revision)), wanted.similarity]
        return f"({sql})", parameters


class SimhashQuerySet(models.QuerySet):
    """A queryset that searches for fingerprints, and writes them with the texts that `update` and others write.

    Use it as `objects = SimhashQuerySet.as_manager()`, or derive your own from it.
    """

    def near(
        self,
        field: str,
        fingerprint: Any = NOT_GIVEN,
        distance: int | None = None,
        **options: Unpack[RowOptions],
    ) -> Self:
        """Return the rows within the distance, nearest first, with their distance as `.distance`.

        Takes the arguments and raises the errors of `Near`.
        """
        wanted = Near(fingerprint, distance, **options).for_field(_simhash_field(self.model, field))
        found: Self = self.filter(**{f"{field}__near": wanted})
        return found.annotate(distance=HammingDistance(field, wanted.query)).order_by("distance", "pk")

    def similar(
        self,
        field: str,
        text: Text,
        similarity: float = SIMILARITY,
        *,
        recall: float | None = None,
        limit: int | None = None,
        scope: Mapping[str, Any] | None = None,
        recipe: Recipe | None = None,
    ) -> list[Any]:
        """Return the rows whose text is at least this similar to a text, from 0 to 1, most similar first.

        Each has attributes for the exact similarity and the distance. The result is a list, because the texts are
        compared after PostgreSQL has found probably similar ones; put filters before: `filter(...).similar(...)`.
        With a `SketchField` of the source, PostgreSQL leaves out rows whose sketch is too different, and keeps
        those without one. `limit` keeps the most similar rows. See `SearchIndex.similar` for `recall`.

        Raises UsageError for shares out of range, for a field without exactly one source, and for a text or a
        recipe that does not fit it.
        """
        if self._fields is not None:
            raise TypeError("Cannot call similar() after .values() or .values_list()")
        column = _simhash_field(self.model, field)
        (source,) = compared_source(column.sources, column, "use near").names
        limit = most_rows(limit)
        parts = text_parts(text, column.sources, str(column))
        recipe = agreed_recipe(column.recipe_id, recipe or column.recipe, str(column))
        index = search_index(self.model, field, using=self.db, recipe=recipe)
        with django_errors(self.db):
            query = index.query(parts[0][0] if parts else "", similarity=similarity, recall=recall)
        if query is None:
            return []
        near = _Similar(query, scope).for_field(column)
        rows = self.filter(**{f"{field}__near": near})
        # Sketches are of words.
        if (of_row := sketch_of(column)) is not None and not compares_features(recipe):
            bits = Coalesce(HammingDistance(of_row.name, sketch(parts[0][0], revision=of_row.revision)), 0)
            rows = rows.filter(LessThanOrEqual(bits, sketch_distance(similarity)))
        # As annotations, they may not have the name of a field.
        distance = HammingDistance(field, query.fingerprint)
        found = list(rows.annotate(distance=distance, similarity=Value(0.0)).order_by("distance", "pk"))
        texts = [text_of(getattr(row, source), column.extract) for row in found]
        alike = similar_texts(parts[0][0], texts, recipe, similarity)
        for place, value in alike:
            found[place].similarity = value
        return [found[place] for place, _ in alike[:limit]]

    def claim(
        self,
        field: str,
        fingerprint: Any = NOT_GIVEN,
        distance: int | None = None,
        **options: Unpack[QueryOptions],
    ) -> Any:
        """Wait for claims of similar fingerprints, then return the nearest row or None; call before an insert.

        See `SearchIndex.claim`. Raises TransactionManagementError outside of `transaction.atomic`, and the errors
        of `near`.
        """
        self._for_write = True
        if transaction.get_autocommit(self.db):
            raise transaction.TransactionManagementError("claim cannot be used outside of a transaction.")
        column = _simhash_field(self.model, field)
        query = Query(fingerprint, distance, **options)
        wanted = Near(fingerprint, distance, **options).for_field(column)
        compiler = self.query.get_compiler(using=self.db)
        resolved = wanted.resolve_expression(self.query)
        sql, parameters = resolved.call("claim", column, compiler)
        with compiler.connection.cursor() as cursor:
            cursor.execute(f"SELECT fingerprint FROM {sql}", parameters)  # noqa: S608 - composed here
            if cursor.fetchone() is None:
                return None
        # Another statement sees the rows that were committed while the claim waited.
        return self.near(field, wanted.query, distance, scope=query.scope).first()

    claim.alters_data = True  # type: ignore[attr-defined]

    def update(self, **values: Any) -> int:
        """Update rows; where a text is a plain value, with its fingerprint, else with NULL for a backfill."""
        self._for_write = True
        unchanged = []
        for field in followers_in(self.model, self.db):
            given = {name: values[name] for name in field.sources.names if name in values}
            texts = {name: as_written(self.model._meta.get_field(name), text) for name, text in given.items()}
            if texts and field.name not in values:
                whole = len(texts) == len(field.sources.names)
                value = values[field.name] = field.compute(texts) if whole else None
                if value is not None:
                    same = self.filter(**{field.name: value}).exclude(**texts)
                    keys = list(same.values_list(field.model._meta.pk.name, flat=True))
                    unchanged.append((field, keys, texts, value))
        updated = super().update(**values)
        for field, keys, texts, value in unchanged:
            if keys:
                # The trigger clears a fingerprint that is that of the old text, too.
                rows = field.model._base_manager.using(self.db).filter(pk__in=keys, **texts)
                rows.filter(**{f"{field.name}__isnull": True}).update(**{field.name: value})
        return updated

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(
        self, objs: Iterable[Any], *args: Any, update_fields: Iterable[str] | None = None, **options: Any
    ) -> list[Any]:
        """Insert objects with their fingerprints, which an upsert of all their texts also writes."""
        objs = list(objs)
        following = followers(self.model)
        for field in following:
            compute_ahead(objs, field)
        if update_fields is None:
            return super().bulk_create(objs, *args, **options)
        # The fingerprint of new texts is not that of a row that keeps some of its own.
        names = [name for name in update_fields if name not in {field.name for field in following}]
        following = [field for field in following if set(names).issuperset(field.sources.names)]
        names += [field.name for field in following]
        self._for_write = True
        with transaction.atomic(using=self.db, savepoint=False):
            created = super().bulk_create(objs, *args, update_fields=names, **options)
            self._write_cleared(objs, following)
        return created

    bulk_create.alters_data = True  # type: ignore[attr-defined]

    def bulk_update(self, objs: Iterable[Any], fields: Iterable[str], **options: Any) -> int:
        """Update fields of objects; if one is a source, with its fingerprint."""
        self._for_write = True
        objs, names = tuple(objs), list(fields)
        following = [
            field
            for field in followers_in(self.model, self.db)
            if not {field.name, *field.sources.names}.isdisjoint(names)
        ]
        for field in following:
            compute_ahead(objs, field)
            for instance in objs:
                instance._state.simsql_written = names
                setattr(instance, field.attname, field.pre_save(instance, add=False))
        written = [*names, *(field.name for field in following if field.name not in names)]
        try:
            with transaction.atomic(using=self.db, savepoint=False):
                updated: int = super().bulk_update(objs, written, **options)
                self._write_cleared(objs, following, **options)
        finally:
            # Django loads what an expression has written when it is asked for.
            for instance in objs:
                for field in following:
                    if hasattr(instance.__dict__.get(field.attname), "resolve_expression"):
                        del instance.__dict__[field.attname]
        return updated

    bulk_update.alters_data = True  # type: ignore[attr-defined]

    def _write_cleared(self, objs: Iterable[Any], following: Iterable[SimhashField], **options: Any) -> None:
        """Write the fingerprints that the trigger has cleared because they are those of the old texts, too."""
        for field in following:
            rows = self.model._base_manager.using(self.db).filter(**{f"{field.name}__isnull": True})
            keys = set(rows.filter(pk__in=[instance.pk for instance in objs]).values_list("pk", flat=True))
            again = [each for each in objs if each.pk in keys and getattr(each, field.attname) is not None]
            if again:
                super().bulk_update(again, [field.name], **options)


def search_index(
    model: Any,
    field: str,
    *,
    using: str = DEFAULT_DB_ALIAS,
    scope: Mapping[str, Any] | None = None,
    recipe: Recipe | None = None,
) -> "SearchIndex":
    """Return the `simsql.database.SearchIndex` on a field: pairs, clusters, many searches, verify, vacuum.

    It works on Django's connection of this thread, in its transaction. `scope` has the values of the scope
    fields by name, and `recipe` is that of the field if its id is not enough. Raises UsageError for a field that
    is not a SimhashField, and django.core.exceptions.FieldDoesNotExist.
    """
    check_database(connections[using])
    from simsql.database import SearchIndex  # noqa: PLC0415 - it needs SQLAlchemy and psycopg

    column = _simhash_field(model, field)
    if scope is not None:
        scoped = {name: model._meta.get_field(name) for name in scope}
        scope = {scoped[name].column: _key(scoped[name], value) for name, value in scope.items()}
    table = connections[using].ops.quote_name(column.model._meta.db_table)
    extract = None if column.extract is None else _of_json(column, column.extract, connections[using])
    recipe = recipe or column.recipe
    return SearchIndex(engine_of(using), table, column.column, scope=scope, recipe=recipe, extract=extract)


def _of_json(column: SimhashField, of_object: Extract, connection: Any) -> Extract:
    """Return the function of a field for the values of its sources as JSON has them, instead of as objects do."""
    fields = [column.model._meta.get_field(name) for name in column.sources.names]
    others = [field for field in fields if not isinstance(field, models.CharField | models.TextField)]

    @functools.wraps(of_object)
    def extract(value: Any) -> str | None:
        # Texts are as they are, unless no source is one.
        if others and not (isinstance(value, str) and len(others) < len(fields)):
            if hasattr(others[0], "from_db_value"):
                is_json = others[0].get_internal_type() == "JSONField"
                value = others[0].from_db_value(json.dumps(value) if is_json else value, None, connection)
            value = others[0].to_python(value)
        return of_object(value)

    return extract


def _simhash_field(model: Any, name: str) -> SimhashField:
    field = model._meta.get_field(name)
    if not isinstance(field, SimhashField):
        raise UsageError(f"{field} is not a SimhashField: search for the fingerprint, not for the text")
    return field


def _as_value(value: Any) -> Any:
    """Return a fingerprint as an expression, and an expression unchanged."""
    return value if hasattr(value, "resolve_expression") else Value(value, output_field=SimhashField())


def _in_scope(model: Any, name: str, value: Any) -> Any:
    """Return the value of a scope field as an expression; UsageError for None."""
    field = model._meta.get_field(name)
    value = _key(field, value)
    if value is None:
        raise UsageError(f"scope: {name!r} must not be None: rows with a null there are not indexed")
    return value if hasattr(value, "resolve_expression") else Value(value, output_field=field)


def _key(field: Any, value: Any) -> Any:
    """Return the key of an object, and any other value unchanged."""
    return getattr(value, field.target_field.attname) if isinstance(value, models.Model) else value
