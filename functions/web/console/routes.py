"""Every route of the console; who may call them is in `functions.web.roles`, as for all others.

They promise nothing, so that the published document leaves them out.
"""

from functions.web.console import assets, books, comparing, jobs, signing_in, submission

PAGE_ROUTES = (
    *signing_in.ROUTES,
    *assets.ROUTES,
    *jobs.ROUTES,
    *books.ROUTES,
    *submission.ROUTES,
    *comparing.ROUTES,
)
