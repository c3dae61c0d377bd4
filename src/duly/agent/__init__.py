"""What runs on every node; it never sees the database."""
