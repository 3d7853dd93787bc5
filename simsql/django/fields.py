"""Fields for fingerprints and sketches: bigint columns that follow the texts of other fields.

Django computes fields in `pre_save`, which `save`, `create` and `bulk_create` call. What they leave out is done by
signals of the model (`save(update_fields=...)`, `loaddata`), by `SimhashQuerySet` (`update`, `bulk_update`), and
last by the trigger that a `SimhashIndex` creates: it clears a fingerprint whose text another writer has changed.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import connections, models, router
from django.db.models.signals import class_prepared, post_init, post_save, pre_save

from simsql.database.bigint import from_bigint, to_bigint
from simsql.database.index_spec import agreed_recipe
from simsql.database.sources import Extract, Sources, compute_many, fingerprint_text
from simsql.django.connection import check_database, engine_of, is_postgresql
from simsql.errors import UsageError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe, Revision, check_recipe, sketch_id

_LARGEST = 2**64 - 1


class _Bits64Field(models.BigIntegerField):
    """64 bits of texts: an int in [0, 2**64) in Python, the bigint with the same bits in PostgreSQL."""

    non_db_attrs = (*models.BigIntegerField.non_db_attrs, "source", "recipe", "extract")
    called = "fingerprint"
    """What errors call a value."""
    recipe: Recipe | None = None
    revision: Revision = 1

    def __init__(
        self,
        *args: Any,
        source: str | Mapping[str, int] | None = None,
        extract: Extract | None = None,
        **options: Any,
    ) -> None:
        self.source, self.extract = source, extract
        self.sources: Any = None if source is None else Sources.of(source, self.recipe, extract, self.revision)
        options = {"null": True, "blank": True, **({} if source is None else {"editable": False}), **options}
        super().__init__(*args, **options)

    def deconstruct(self) -> Any:
        name, path, args, options = super().deconstruct()
        if self.source is not None:
            options["source"] = self.source
        if self.extract is not None:
            options["extract"] = self.extract
        return name, path.replace("simsql.django.fields", "simsql.django"), args, options

    def contribute_to_class(self, cls: Any, name: str, *args: Any, **options: Any) -> None:
        """Add the field to a model. A copy of that of another table, as of a history, follows no texts."""
        copied = getattr(self, "model", None)
        if copied is not None and not copied._meta.abstract:
            self.source = self.sources = self.extract = None
        super().contribute_to_class(cls, name, *args, **options)
        # Subclasses and proxies have the field, too, and signals of their own.
        class_prepared.connect(_follow, dispatch_uid="simsql.django")

    @property
    def validators(self) -> list[Callable[[Any], None]]:
        """The range of fingerprints, not that of bigint."""
        return [*self._validators, MinValueValidator(0), MaxValueValidator(_LARGEST)]

    def formfield(self, **options: Any) -> Any:
        return super().formfield(**{"min_value": 0, "max_value": _LARGEST, **options})

    def get_prep_value(self, value: Any) -> Any:
        """Return the bigint. Raises ValueError for a number outside [0, 2**64)."""
        return value if hasattr(value, "resolve_expression") else to_bigint(value, self.called)

    def from_db_value(self, value: int | None, expression: Any, connection: Any) -> int | None:  # noqa: ARG002
        return from_bigint(value)

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        """Return the bigint to write. Raises UsageError for another recipe or other sketches in the database."""
        if self.sources and value is not None and not hasattr(value, "as_sql") and is_postgresql(connection):
            _refuse_other_recipe(self, connection)
        return super().get_db_prep_save(value, connection)

    def pre_save(self, model_instance: Any, add: bool) -> Any:
        """Return the value for the texts of an object, and set the attribute.

        Return an expression that keeps the value of the row where an UPDATE leaves other texts there.
        """
        if self.sources is None:
            return super().pre_save(model_instance, add)
        if not add and _has_deferred(self, model_instance):
            return models.F(self.name)
        compute_ahead((model_instance,), self)
        texts = self.texts_of(model_instance)
        named = dict(zip(self.sources.names, texts, strict=True))
        ahead, value = _state(model_instance, "computed").get(self.attname, (None, None))
        if ahead != texts:
            value = self.compute(named)
        setattr(model_instance, self.attname, value)
        written = None if add else getattr(model_instance._state, "simsql_written", None)
        unwritten = {name: text for name, text in named.items() if written is not None and name not in written}
        if not unwritten:
            return value
        # The row may have other texts than the object.
        of_texts = models.When(**unwritten, then=models.Value(value, output_field=self))
        return models.Case(of_texts, default=models.F(self.name))

    def texts_of(self, instance: Any) -> tuple[Any, ...]:
        """Return the texts of an object as they are written."""
        fields = (self.model._meta.get_field(name) for name in self.sources.names)
        return tuple(as_written(field, getattr(instance, field.attname)) for field in fields)

    def compute(self, texts: Mapping[str, Any]) -> int | None:
        if any(hasattr(text, "resolve_expression") for text in texts.values()):
            return None
        self.check_recipe()
        return self.sources.compute({name: self.loaded(name, text) for name, text in texts.items()}, str(self))

    def loaded(self, source: str, value: Any) -> Any:
        """Return a value that a source writes as an object has it: the function makes a text of that."""
        if self.extract is None or value is None:
            return value
        return self.model._meta.get_field(source).to_python(value)

    def has_text_sources(self) -> bool:
        fields = map(self.model._meta.get_field, self.sources.names)
        return all(isinstance(field, models.CharField | models.TextField) for field in fields)

    def check_recipe(self) -> None:
        """Raise UsageError if the values of texts cannot be computed."""

    def check(self, **options: Any) -> list[checks.CheckMessage]:
        return [*super().check(**options), *self._check_sources(), *self._check_databases(**options)]

    def _check_sources(self) -> Iterable[checks.CheckMessage]:
        if self.sources is None:
            return
        try:
            self.check_recipe()
        except UsageError as error:
            yield checks.Error(str(error), obj=self, id="simsql.E005")
        own = {field.name: field for field in self.model._meta.local_concrete_fields}
        for name in self.sources.names:
            kinds = models.CharField | models.TextField if self.extract is None else models.Field
            if not isinstance(own.get(name), kinds):
                yield checks.Error(
                    f"The source {name!r} is not a text field of the table {self.model._meta.db_table}.",
                    hint=f"Name a text field of {self.model.__name__} itself, or pass extract=, a function that"
                    " makes a text of the values of another one.",
                    obj=self,
                    id="simsql.E001",
                )
        if not self.null:
            yield checks.Error(
                f"A field with a source must allow nulls: a text without words has no {self.called}.",
                hint="Remove null=False.",
                obj=self,
                id="simsql.E002",
            )

    def _check_databases(self, databases: Iterable[str] | None = None, **_: Any) -> Iterable[checks.CheckMessage]:
        for alias in databases or ():
            if not is_postgresql(connections[alias]) or not router.allow_migrate_model(alias, self.model):
                continue
            try:
                check_database(connections[alias])
            except ImproperlyConfigured as error:
                yield checks.Error(str(error), obj=self, id="simsql.E003")
                continue
            if not self.sources or self.model._meta.db_table not in connections[alias].introspection.table_names():
                continue
            try:
                _refuse_other_recipe(self, connections[alias])
            except UsageError as error:  # a warning, for migrate may be about to change the index
                yield checks.Warning(str(error), obj=self, id="simsql.W001")


class SimhashField(_Bits64Field):
    """A 64-bit fingerprint: an int in [0, 2**64) in Python, the bigint with the same bits in PostgreSQL.

    source
        The field whose text is fingerprinted, or several with their weights, such as `{"title": 3, "body": 1}`.
        The fingerprint follows them: what you assign is overwritten. Without it, assign fingerprints yourself.
    recipe
        How a text becomes a fingerprint: a `simsql.Recipe` or its id, by default simsql's default recipe. If
        fingerprints do not come from texts, a name of your own, such as "phash64".
    extract
        A function that makes a text, or None, of the value of a source, if that is HTML, JSON or the like, such as
        `simsql.visible_text`. It is a function of a module: its name is stored with the recipe of the index, and
        only processes that have it fill the field. Searches for a text do not call it.

    The field may be null, as the fingerprint of a text without words is. Raises ValueError for an empty source or
    a weight outside of 1 to 1,000,000.
    """

    description = "Fingerprint (64 bits)"

    def __init__(self, *args: Any, recipe: Recipe | str | None = None, **options: Any) -> None:
        self.names_recipe = recipe is not None
        self.recipe_id, self.recipe = _read_recipe(recipe)
        super().__init__(*args, **options)

    def deconstruct(self) -> Any:
        """Return the arguments, with the id of the recipe: another default one is a change, too."""
        name, path, args, options = super().deconstruct()
        return name, path, args, {"recipe": self.recipe_id, **options}

    def fingerprint(self, text: str | Mapping[str, str | None], recipe: Recipe | None = None) -> int | None:
        """Return the fingerprint of a text, or one for each source by name, to search for it.

        Raises UsageError if a given recipe is not that of the field, and if the id of the field's is not enough.
        """
        if recipe is None:
            self.check_recipe()
        given = agreed_recipe(self.recipe_id, recipe or self.recipe, str(self))
        return fingerprint_text(text, self.sources, given, str(self))

    def check_recipe(self) -> None:
        """Raise UsageError if there is only the id of the recipe, and the id is not enough."""
        if self.recipe is None:
            raise UsageError(
                f"{self}: the id {self.recipe_id} is not enough to fingerprint texts: pass the Recipe to the field"
            )


class SketchField(_Bits64Field):
    """A sketch, 64 one-bit MinHashes of a text, for `near(text=..., similarity=...)`.

    source
        The field whose text is sketched. The sketch follows it, as the `SimhashField` with the same source does.
        Without it, assign sketches yourself.
    extract
        The function that makes a text of the source, the same as that of the `SimhashField`.
    revision
        That of the recipe of the `SimhashField`. The comment of the column names it: `minhash64-2` for 2.

    The field may be null, as the sketch of a text without words is. Raises TypeError for a source that is not a
    str: a sketch is that of one text.
    """

    description = "Sketch (64 bits)"
    called = "sketch"

    def __init__(self, *args: Any, source: str | None = None, revision: Revision = 1, **options: Any) -> None:
        if source is not None and not isinstance(source, str):
            raise TypeError(f"a sketch is that of one text: name one field as its source, not {source!r}")
        self.revision = revision
        comment = {"db_comment": sketch_id(revision)} if revision > 1 else {}
        super().__init__(*args, source=source, **{**comment, **options})

    def deconstruct(self) -> Any:
        """Return the arguments."""
        name, path, args, options = super().deconstruct()
        return name, path, args, {**options, **({"revision": self.revision} if self.revision > 1 else {})}

    def _check_sources(self) -> Iterable[checks.CheckMessage]:
        yield from super()._check_sources()
        fields = (field for field in self.model._meta.local_concrete_fields if isinstance(field, SimhashField))
        if self.source is not None and self not in map(sketch_of, fields):
            yield checks.Error(
                f"The sketch has no SimhashField of its own with the source {self.source!r}.",
                hint=f"Add SimhashField(source={self.source!r}), with the same extract= and revision of the"
                " recipe, and one SketchField.",
                obj=self,
                id="simsql.E004",
            )


def sketch_of(field: SimhashField) -> SketchField | None:
    """Return the sketch of the single source of a field in its table."""
    found: SketchField | None = _find_other(field, SketchField)
    return found


def _find_other(field: _Bits64Field, kind: type[_Bits64Field]) -> Any:
    """Return the first field of a kind in the table of a field with the same single source and revision."""
    names = field.sources.names if field.sources else ()
    for other in field.model._meta.local_concrete_fields if len(names) == 1 else ():
        same = isinstance(other, kind) and other.sources and other.sources.names == names
        if same and (other.extract, other.sources.revision) == (field.extract, field.sources.revision):
            return other
    return None


_followers: WeakKeyDictionary[Any, list[_Bits64Field]] = WeakKeyDictionary()


def followers(model: Any) -> list[_Bits64Field]:
    """Return the fields of a model that follow texts."""
    if model not in _followers:
        fields = (field for field in model._meta.concrete_fields if isinstance(field, _Bits64Field))
        _followers[model] = [field for field in fields if field.sources is not None]
    return _followers[model]


def followers_in(model: Any, using: str) -> list[_Bits64Field]:
    """Return those whose columns a database has: a migration can import a model before another adds its column."""
    connection = connections[using]
    if not getattr(connection, "simsql_migrates", False):
        return followers(model)
    with connection.cursor() as cursor:
        columns = functools.partial(connection.introspection.get_table_description, cursor)
        return [
            field
            for field in followers(model)
            if any(column.name == field.column for column in columns(field.model._meta.db_table))
        ]


def compute_ahead(instances: Iterable[Any], field: _Bits64Field) -> None:
    """Compute the values of many objects at once, several times faster, and those of the sketch beside them."""
    waiting = []
    for instance in instances:
        texts = () if _has_deferred(field, instance) else field.texts_of(instance)
        state = _state(instance, "computed")
        if len(texts) == 1 and isinstance(texts[0], str) and state.get(field.attname, ())[:1] != (texts,):
            waiting.append((state, texts))
    if not waiting:
        return
    other = _find_other(field, SimhashField if isinstance(field, SketchField) else SketchField)
    for each in (field, other) if other else (field,):
        each.check_recipe()
    (name,) = field.sources.names
    loaded = (field.loaded(name, text) for _, (text,) in waiting)
    values = compute_many(loaded, field.sources, other and other.sources)
    for (state, texts), (value, value_of_other) in zip(waiting, values, strict=True):
        state[field.attname] = texts, value
        if other:
            state[other.attname] = texts, value_of_other


def _read_recipe(recipe: Recipe | str | None) -> tuple[str, Recipe | None]:
    """Return the id, and the recipe if it is known. Migrations only have the id."""
    if recipe is None:
        return DEFAULT_RECIPE.id, DEFAULT_RECIPE
    if isinstance(recipe, str):
        try:
            return recipe, Recipe.from_id(recipe)
        except ValueError:
            return recipe, None
    check_recipe(recipe)
    return recipe.id, recipe


def as_written(field: Any, value: Any) -> Any:
    """Return a text as the field writes it, and an expression unchanged."""
    return value if value is None or hasattr(value, "resolve_expression") else field.get_prep_value(value)


def _refuse_other_recipe(field: _Bits64Field, connection: Any) -> None:
    check_database(connection)
    from sqlalchemy import cast, literal  # noqa: PLC0415
    from sqlalchemy.dialects.postgresql import REGCLASS  # noqa: PLC0415

    from simsql.database import recipes  # noqa: PLC0415

    table = field.model._meta.db_table
    engine = engine_of(connection.alias)
    recipe_id = field.sources.recipe_id
    if recipes.is_agreed(engine.dialect, table, field.column, recipe_id, field.sources.revision):
        return
    field.check_recipe()
    regclass = cast(literal(connection.ops.quote_name(table)), REGCLASS)
    sketches = [each.column for each in field.model._meta.local_concrete_fields if isinstance(each, SketchField)]
    written = recipes.WrittenTable(table, table, regclass, sketches)
    with engine.connect() as shared:
        recipes.refuse_other_recipe(shared, written, field.column, recipe_id, field.sources.revision)


# The signals of models with such fields


def _follow(sender: Any, **_: Any) -> None:
    if not sender._meta.abstract and followers(sender):
        post_init.connect(_on_load, sender=sender)
        pre_save.connect(_before_save, sender=sender)
        post_save.connect(_after_save, sender=sender)


def _state(instance: Any, name: str) -> dict[str, Any]:
    """Return by field the texts "loaded", the texts and value "computed", or the value "before" a save."""
    kept: dict[str, Any] = instance._state.__dict__.setdefault(f"simsql_{name}", {})
    return kept


def _has_deferred(field: _Bits64Field, instance: Any) -> bool:
    names = field.sources.names
    return any(field.model._meta.get_field(name).attname not in instance.__dict__ for name in names)


def _remember(instance: Any, field: _Bits64Field) -> None:
    # A value such as that of a JSONField can change in its place, and it takes long to write one.
    if instance.__dict__.get(field.attname) is None or not field.has_text_sources():
        return
    if not _has_deferred(field, instance):
        _state(instance, "loaded")[field.attname] = field.texts_of(instance)


def _on_load(sender: Any, instance: Any, **_: Any) -> None:
    for field in followers(sender):
        _remember(instance, field)


def _before_save(sender: Any, instance: Any, raw: bool, update_fields: Any, **_: Any) -> None:
    """Compute the fingerprints of an object that a fixture has: Django writes it without `pre_save`."""
    instance._state.simsql_written = update_fields
    if instance._state.adding:
        _state(instance, "loaded").clear()  # it is not from the database
    for field in followers(sender):
        # As it was loaded or refreshed.
        _state(instance, "before")[field.attname] = instance.__dict__.get(field.attname)
        if raw:
            field.pre_save(instance, add=False)


def _after_save(sender: Any, instance: Any, created: bool, using: str, update_fields: Any, **_: Any) -> None:
    """Write the fingerprints that Django has left out, or that the trigger may have cleared.

    The trigger clears a fingerprint that an UPDATE of the text leaves unchanged, as it is if only letter case
    changes.
    """
    for field in followers_in(sender, using):
        names = field.sources.names
        if _has_deferred(field, instance) or (update_fields is not None and update_fields.isdisjoint(names)):
            continue
        rows = field.model._base_manager.using(using).filter(pk=getattr(instance, field.model._meta.pk.attname))
        texts, loaded = field.texts_of(instance), _state(instance, "loaded").pop(field.attname, None)
        if update_fields is not None and field.name not in update_fields:
            fingerprint, write = field.pre_save(instance, add=True), True
        else:
            fingerprint, rows = instance.__dict__[field.attname], rows.filter(**{f"{field.name}__isnull": True})
            unchanged = _state(instance, "before")[field.attname] == fingerprint
            write = not created and fingerprint is not None and (loaded is None or (loaded != texts and unchanged))
        if write:
            # Another writer may have changed the text since.
            of_texts = {} if fingerprint is None else dict(zip(names, texts, strict=True))
            rows.filter(**of_texts).update(**{field.name: fingerprint})
        if update_fields is None or update_fields.issuperset(names):
            _remember(instance, field)
