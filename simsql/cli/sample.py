"""`simsql sample`: pairs of documents to label."""

from pathlib import Path
from typing import Annotated

from simsql.cli._app import command
from simsql.cli._options import (
    FoldingRecipeName,
    Paths,
    Reading,
    Workers,
    number_option,
    option,
    parse_recipe,
    path_option,
)
from simsql.cli._terminal import Telling, print_skips
from simsql.documents import STDOUT, Outputs
from simsql.processes import usable_cores


@command("sample")
def sample_command(
    *,
    paths: Paths,
    pairs: Annotated[int, number_option("--pairs", least=1)] = 200,
    by_features: Annotated[bool, option("--by-features")] = False,
    seed: Annotated[int, number_option("--seed", least=0)] = 0,
    recipe: FoldingRecipeName = None,
    output: Annotated[Path | None, path_option("--output", ": .csv, .tsv, or else JSON lines")] = None,
    reading: Reading,
    workers: Workers = None,
    telling: Telling,
) -> None:
    """Draw pairs of documents to label.

    Draw the same number of random pairs of each kind that dedup tells apart, of similar ones in each tenth of the
    similarity, and of all others, or all where there are fewer. Write both texts of each pair, their kind,
    distance and similarity, the number of pairs that it stands for (its weight), and an empty label. Fill in
    near-duplicate, not or unsure, and run simsql evaluate.
    """
    from simsql.evaluate.sample import write_sample
    from simsql.fingerprint import FOLDING_RECIPE

    made_by = parse_recipe(recipe) or FOLDING_RECIPE
    outputs = Outputs({"--output": output or STDOUT})
    if recipe:
        outputs.refuse(Path(recipe))
    reader = reading.open(paths, outputs=outputs)
    write_sample(
        output,
        reader,
        telling.stages(),
        pairs=pairs,
        seed=seed,
        recipe=made_by,
        by_features=by_features,
        workers=workers or usable_cores(),
    )
    print_skips(reader.skips, telling.console, counted=True)
    reader.skips.check_read()
