-- serves: 0003

-- What an attempt says of itself while it runs. Almost no task does, so all of it is null and
-- takes no room. None of it is indexed: to say something is an update in place (HOT).
-- What an earlier attempt has left here counts for nothing: the digest is of a key that names
-- its fence, and progress is shown only under the token that it was said with.
alter table live
    add column attempt_key     bytea,  -- SHA-256
    add column progress        float8,
    add column progress_text   text,
    add column progress_token  bigint,
    add column progress_at     timestamptz;
