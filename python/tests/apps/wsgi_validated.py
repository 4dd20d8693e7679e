"""The cases, looked at by wsgiref's validator."""

from wsgiref.validate import validator

import wsgi_cases

application = validator(wsgi_cases.application)
