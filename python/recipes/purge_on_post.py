"""A change of an article voids the pages that list articles: they carry a tag, and the tag is purged.

Larder itself voids the URL to which the request went, and no other page that shows the same thing.
"""

import larder

TAG = "articles"


@larder.fetched(path=["/articles", "/articles/**", "/"], method=["GET", "HEAD"], status=200)
def tag_pages(req: larder.Request, resp: larder.FetchedResponse) -> None:
    resp.tags.add(TAG)


# The statuses of a success: a request that the origin refused, as one without a login, purges nothing.
@larder.fetched(
    path=["/articles", "/articles/**"],
    method=["POST", "PUT", "PATCH", "DELETE"],
    status=[200, 201, 202, 204, 302, 303],
)
def purge_pages(req: larder.Request, resp: larder.FetchedResponse) -> None:
    resp.purge.tag(TAG)
