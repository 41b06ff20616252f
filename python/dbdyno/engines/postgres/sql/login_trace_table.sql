-- Sessions that were caught. Unlogged: a login writes no WAL that it would have to wait for.
create unlogged table dbdyno_logins.caught (
    at timestamptz not null, pid int4 not null, started timestamptz not null, sessions int4 not null,
    role text not null, client text not null
)
