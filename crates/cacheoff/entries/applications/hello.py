"""The hello page of the contest as a hook, in front of whatever the site's origin is."""

import larder


@larder.page("/hello")
def hello(req):
    return larder.Response("Hello, World!\n", headers={"Content-Type": "text/plain", "Cache-Control": "no-store"})
