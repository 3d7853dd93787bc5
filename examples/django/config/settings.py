"""Settings. The variables of libpq, such as PGHOST and PGUSER, name the server."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "config.urls"
INSTALLED_APPS = [
    "articles",
    "simsql.django",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "articles"),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
