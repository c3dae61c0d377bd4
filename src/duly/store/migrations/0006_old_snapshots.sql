-- serves: 0003

-- An attempt that has ended leaves its entry in the index for as long as anybody holds a
-- snapshot from before its end. Tokens only go up: with them in the index, whoever remembers
-- how far it has read can begin above what it has seen, instead of walking over what is gone.
drop index live_running;
create index live_running on live (incarnation_id, token) where status = 'running';
