-- Whether a session is still logging in that began before ${since}.
select exists (
    select from pg_catalog.pg_stat_get_activity(null) as s
    where s.backend_type = 'client backend' and coalesce(s.state, 'starting') = 'starting'
          and s.backend_start < ${since}
)
