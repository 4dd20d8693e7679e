"""The cases, in a process that has no epoll."""

import select

import wsgi_cases

if hasattr(select, "epoll"):
    del select.epoll
application = wsgi_cases.application
