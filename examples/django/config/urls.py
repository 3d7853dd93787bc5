"""The URLs of the project."""

from articles import views
from django.urls import path

urlpatterns = [
    path("articles", views.post_article),
    path("articles/<int:number>", views.get_article),
    path("articles/<int:number>/similar", views.get_similar),
]
