"""PostgreSQL: reads and writes, decides nothing."""
