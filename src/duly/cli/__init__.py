"""The command line, all of it through the client."""
