-- serves: 0003

-- How many more nodes a join token admits; null for any number of them, as it was for the tokens
-- that are there already and is for those that an older server makes.
alter table node_tokens
    add column uses_left integer check (uses_left >= 0);
