"""The admin, and its style sheets by Django's own handler."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "django_site.settings")
application = StaticFilesHandler(get_wsgi_application())
