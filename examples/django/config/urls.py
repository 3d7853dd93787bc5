"""The URLs of the project."""

from django.urls import path

from articles import views

urlpatterns = [
    path("articles", views.post_article),
    path("articles/<int:number>", views.get_article),
    path("articles/<int:number>/similar", views.get_similar),
]
