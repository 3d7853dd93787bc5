"""IndexSpec: describe a simhash index once, check it, and render it as SQL arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import ColumnElement, Integer, Text, cast, literal, literal_column
from sqlalchemy.dialects.postgresql import ARRAY, array
from sqlalchemy.types import TypeEngine

from simsql.fingerprint import Recipe
from simsql.hamming import Design
from simsql.hamming._checks import FINGERPRINT_BITS, whole_number

_TYPES: dict[str, TypeEngine[Any]] = {
    "distance": Integer(),
    "blocks": Integer(),
    "lead": Integer(),
    "inner_blocks": Integer(),
    "recipe": Text(),
    "scope": ARRAY(Text),
}


@dataclass(frozen=True)
class IndexSpec:
    """The description of a simhash index on one column, without its table.

    Raises ValueError for a distance out of range, and TypeError if the distance is not an integer or the scope is
    a single str.
    """

    column: str
    """The unquoted name of the bigint column."""
    distance: int = 3
    """From 0 to 64: what searches use that name none."""
    design: Design | None = None
    """The layout; None lets PostgreSQL choose it by the number of rows."""
    recipe: str | None = None
    """The id of the recipe, or a name of your own for fingerprints that are not made of texts."""
    scope: tuple[str, ...] = ()
    """The unquoted names of the columns to whose values searches are confined."""

    def __post_init__(self) -> None:
        # A numpy integer is let in, and stored as an int.
        object.__setattr__(self, "distance", whole_number("distance", self.distance, 0, FINGERPRINT_BITS))
        if isinstance(self.scope, str):
            raise TypeError(f"scope must be a sequence of column names, not a str: pass scope=[{self.scope!r}]")

    @classmethod
    def of(
        cls,
        column: str,
        *,
        distance: int = 3,
        design: Design | None = None,
        recipe: Recipe | str | None = None,
        scope: Sequence[str] = (),
    ) -> Self:
        """Return the description in plain values: the id of a recipe, a tuple of columns."""
        recipe_id = recipe.id if isinstance(recipe, Recipe) else recipe
        # Names that come from a Column are a subclass of str, which has no type in SQL.
        names = scope if isinstance(scope, str) else tuple(map(str, scope))
        return cls(str(column), distance, design, recipe_id, names)  # type: ignore[arg-type]  # refuses a str

    def options(self) -> dict[str, object]:
        """Return the named arguments of `simsql.create_index` and `simsql.build`, without omitted ones."""
        design = self.design
        layout = (design.blocks, design.lead, design.inner_blocks) if design else (None, None, None)
        values = (self.distance, *layout, self.recipe, list(self.scope) or None)
        return {name: value for name, value in zip(_TYPES, values, strict=True) if value is not None}

    def arguments(self, names: Sequence[str] | None = None) -> list[ColumnElement[object]]:
        """Return the arguments of an SQL function after the table: the column, then the options by name.

        By default these are the options with a value. With `names`, they are those options, null if they have no
        value.
        """
        given = self.options()
        options = [literal_column(name).op("=>")(_expression(name, given.get(name))) for name in names or given]
        return [literal(self.column, Text()), *options]


def _expression(name: str, value: object) -> ColumnElement[object]:
    if isinstance(value, list):
        return cast(array([literal(member, Text()) for member in value]), ARRAY(Text))
    return literal(value, _TYPES[name]) if value is not None else cast(None, _TYPES[name])
