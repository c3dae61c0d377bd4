-- serves: 0003

-- A key that somebody got by logging in with a password: it ends soon, and by logging out.
alter table keys
    add column is_login boolean not null default false;

-- Whoever may look at a user is told whether there is a password, and never its hash.
alter table users
    add column has_password boolean not null generated always as (password_hash is not null) stored;

create index keys_by_user on keys (user_id, id) where user_id is not null;

-- There must always be an administrator: this answers whether there is.
create index keys_of_administrators on keys (id)
    where 'admin' = any(scopes) and revoked_at is null;

-- Until now a user could do what its keys could.
update users u
   set scopes = mine.scopes
  from (
        select k.user_id, array_agg(distinct scope order by scope) as scopes
          from keys k,
               unnest(k.scopes) as scope
         where k.user_id is not null
         group by k.user_id
       ) as mine
 where mine.user_id = u.id;
