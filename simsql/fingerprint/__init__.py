"""Text to fingerprint: 64-bit SimHash of any script, with only NumPy.

The other packages of simsql also import names from here that are not in `__all__`.
"""

from simsql.fingerprint.comparisons import Tokens as Tokens
from simsql.fingerprint.comparisons import compare_documents as compare_documents
from simsql.fingerprint.comparisons import compare_pairs as compare_pairs
from simsql.fingerprint.comparisons import documents_of as documents_of
from simsql.fingerprint.comparisons import pairs_of as pairs_of
from simsql.fingerprint.documents import count_documents as count_documents
from simsql.fingerprint.documents import map_items as map_items
from simsql.fingerprint.documents import simhash, simhash_many, simhash_parts
from simsql.fingerprint.documents import simhash_items as simhash_items
from simsql.fingerprint.documents import simhash_items_with_sketches as simhash_items_with_sketches
from simsql.fingerprint.documents import simhash_items_with_tokens as simhash_items_with_tokens
from simsql.fingerprint.features import IdfTable as IdfTable
from simsql.fingerprint.hashes import GOLDEN as GOLDEN
from simsql.fingerprint.hashes import mix as mix
from simsql.fingerprint.html_text import CHARSET as CHARSET
from simsql.fingerprint.html_text import html_parts, simhash_html, visible_text
from simsql.fingerprint.html_text import name_charset as name_charset
from simsql.fingerprint.jaccard import show_similarity as show_similarity
from simsql.fingerprint.jaccard import similarity, similarity_many
from simsql.fingerprint.margins import compares_features as compares_features
from simsql.fingerprint.margins import flips_of_parts as flips_of_parts
from simsql.fingerprint.margins import similarities as similarities
from simsql.fingerprint.pictures import COLOUR_SIDE as COLOUR_SIDE
from simsql.fingerprint.pictures import GREY_SIDE as GREY_SIDE
from simsql.fingerprint.pictures import HASH_SIDE as HASH_SIDE
from simsql.fingerprint.pictures import count_pixels as count_pixels
from simsql.fingerprint.pictures import hash_picture as hash_picture
from simsql.fingerprint.pictures import is_text_of as is_text_of
from simsql.fingerprint.pictures import spell_picture as spell_picture
from simsql.fingerprint.pictures import spell_unseen as spell_unseen
from simsql.fingerprint.recipe import DEFAULT_RECIPE, KNOWN_RECIPES, Pattern, Recipe, Tokenizer
from simsql.fingerprint.recipe import FOLDING_RECIPE as FOLDING_RECIPE
from simsql.fingerprint.recipe import Revision as Revision
from simsql.fingerprint.recipe import check_recipe as check_recipe
from simsql.fingerprint.recipe_file import read_recipe, write_recipe
from simsql.fingerprint.sketches import BANDS as BANDS
from simsql.fingerprint.sketches import Minima as Minima
from simsql.fingerprint.sketches import estimate_similarity, sketch, sketch_many
from simsql.fingerprint.sketches import minima_of_tokens as minima_of_tokens
from simsql.fingerprint.sketches import sketch_distance as sketch_distance
from simsql.fingerprint.sketches import sketch_id as sketch_id
from simsql.fingerprint.utf8 import TokenLists as TokenLists
from simsql.fingerprint.vote import Fingerprints as Fingerprints
from simsql.fingerprint.vote import majority, simhash_features

__all__ = [
    "DEFAULT_RECIPE",
    "KNOWN_RECIPES",
    "Pattern",
    "Recipe",
    "Tokenizer",
    "estimate_similarity",
    "html_parts",
    "majority",
    "read_recipe",
    "simhash",
    "simhash_features",
    "simhash_html",
    "simhash_many",
    "simhash_parts",
    "similarity",
    "similarity_many",
    "sketch",
    "sketch_many",
    "visible_text",
    "write_recipe",
]
