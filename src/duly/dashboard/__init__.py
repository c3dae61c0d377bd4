"""Pages for people; an API client like any other."""
