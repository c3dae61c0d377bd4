-- serves: 0003

-- Those that ended lately, among all that are remembered: what they have left is looked for.
create index incarnations_by_end on incarnations (ended_at);
