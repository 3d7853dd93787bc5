"""Articles over HTTP, as JSON."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from articles.models import Article


@csrf_exempt
@require_POST
@transaction.atomic
def post_article(request: HttpRequest) -> JsonResponse:
    """Post an article, unless there is one that is nearly the same."""
    new = json.loads(request.body)
    known = Article.objects.claim("fingerprint", text=new["body"])
    if known is not None:
        return JsonResponse({"error": f"nearly the same as article {known.pk}"}, status=409)
    article = Article.objects.create(author_id=new["author"], title=new["title"], body=new["body"])
    return JsonResponse(_as_json(article), status=201)


def get_article(request: HttpRequest, number: int) -> JsonResponse:
    """Return an article."""
    return JsonResponse(_as_json(get_object_or_404(Article, pk=number)))


def get_similar(request: HttpRequest, number: int) -> JsonResponse:
    """Return the articles with a similar text, most similar first: 20 on a page."""
    article = get_object_or_404(Article, pk=number)
    start = int(request.GET.get("start", 0))
    others = Article.objects.exclude(pk=number).select_related("author")
    page = others.similar("fingerprint", article.body, similarity=0.6)[start : start + 20]
    return JsonResponse({"articles": [{**_as_json(found), "similarity": found.similarity} for found in page]})


def _as_json(article: Article) -> dict[str, object]:
    return {"id": article.pk, "author": article.author.name, "title": article.title, "body": article.body}
