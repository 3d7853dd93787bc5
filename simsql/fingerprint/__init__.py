"""Text to fingerprint: 64-bit SimHash of any script, with only NumPy.

simhash("some text")            an int in [0, 2**64), or None for a text without features
simhash_many(texts)             a masked array of uint64
simhash_batches(texts)          the same in batches
simhash_items(items)            batches of items of any type with the fingerprints of their texts
simhash_items_with_tokens(...)  the same with the hashes of their tokens, as compare_tokens expects them
tokens_of_items(items)          batches of items with the hashes of their tokens alone
simhash_parts(parts)            one fingerprint of several weighted texts
simhash_features(features)      one fingerprint of your own features: strings, with or without weights
simhash_rows(matrix, names)     fingerprints of the rows of a SciPy sparse matrix, such as TF-IDF
simhash_html(page)              one fingerprint of the main content of a web page
html_parts(page)                the texts of a web page: title, headings, rest
Recipe(...), DEFAULT_RECIPE     how a text becomes features, weights and hashes
Pattern, Tokenizer              tokens from a regular expression or from your own function
KNOWN_RECIPES                   the recipes of other programs, by name
read_recipe, write_recipe       recipes in files
check_recipe(recipe)            a TypeError for anything but a Recipe
count_documents(texts)          an IdfTable with the rarity of the features of a corpus
majority(hashes, weights)       only the vote, for your own hashes
similarity(a, b)                the Jaccard index of the word trigrams of two texts, from 0.0 to 1.0
similarity_many(a, b)           the same for many pairs of texts
compare_tokens(tokens, ...)     the same for texts whose tokens are hashed already
compare_documents(counts, ...)  the same for tokens that are read from somewhere, in bounded memory
compare_pairs(counts, ...)      the same for many pairs, in blocks: pairs_of and documents_of convert them
"""

from simsql.fingerprint.comparisons import compare_documents, compare_pairs, documents_of, pairs_of
from simsql.fingerprint.documents import (
    count_documents,
    simhash,
    simhash_batches,
    simhash_items,
    simhash_items_with_tokens,
    simhash_many,
    simhash_parts,
    tokens_of_items,
)
from simsql.fingerprint.features import IdfTable
from simsql.fingerprint.html_text import html_parts, simhash_html
from simsql.fingerprint.jaccard import compare_tokens, similarity, similarity_many
from simsql.fingerprint.recipe import DEFAULT_RECIPE, KNOWN_RECIPES, Pattern, Recipe, Tokenizer, check_recipe
from simsql.fingerprint.recipe_file import read_recipe, write_recipe
from simsql.fingerprint.tokens import TokenLists
from simsql.fingerprint.vote import majority, simhash_features, simhash_rows

__all__ = [
    "DEFAULT_RECIPE",
    "KNOWN_RECIPES",
    "IdfTable",
    "Pattern",
    "Recipe",
    "TokenLists",
    "Tokenizer",
    "check_recipe",
    "compare_documents",
    "compare_pairs",
    "compare_tokens",
    "count_documents",
    "documents_of",
    "html_parts",
    "majority",
    "pairs_of",
    "read_recipe",
    "simhash",
    "simhash_batches",
    "simhash_features",
    "simhash_html",
    "simhash_items",
    "simhash_items_with_tokens",
    "simhash_many",
    "simhash_parts",
    "simhash_rows",
    "similarity",
    "similarity_many",
    "tokens_of_items",
    "write_recipe",
]
