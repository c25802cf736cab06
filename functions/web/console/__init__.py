"""The console: pages for people over the same records, roles and limits as the API.

    sign in -> key in a cookie -> page: caller -> records -> the API's views -> template
                               -> form: caller -> from our own page? -> what the API does -> page

Pages work without JavaScript; one script refreshes an open job's page. Nothing is fetched from
elsewhere, and every text is escaped: facts, answers and labels come from strangers.
"""
