"""The HTTP side: routes, request reading, problems, push decoding, authentication."""
