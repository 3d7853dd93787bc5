"""Commands for manage.py."""
