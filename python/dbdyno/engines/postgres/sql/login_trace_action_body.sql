-- Traces this session if it is one of those that are wanted. Logins are put in order by advisory locks that nobody waits
-- for: each takes the first number that is free above all others, and keeps it. Sessions before it are those with a lower
-- number, and those without one that are past their login; so no two logins come to the same count, and none is left out.
declare
    me int4 := pg_backend_pid();
    started timestamptz;
    client text;
    place int8;
    pids int4[];
    past bool[];
    n int8;
    enough bool := false;
begin
    select coalesce(max(objid::int8), 0) into place
    from pg_lock_status() where locktype = 'advisory' and classid = ${numbers} and objsubid = 2;
    loop
        place := place + 1;
        exit when pg_try_advisory_lock(${numbers}, place::int4);
    end loop;
    select array_agg(s.pid), array_agg(coalesce(s.state, 'starting') <> 'starting'),
           max(s.backend_start) filter (where s.pid = me)
    into pids, past, started
    from pg_stat_get_activity(null) as s
    where s.usesysid = ${role_id} and s.backend_type = 'client backend';
    -- read after the sessions: whoever was past the login then has a number that is seen now
    select 1 + count(*) filter (where coalesce(l.objid::int8 < place, s.past)) into n
    from unnest(pids, past) as s (pid, past)
         left join pg_lock_status() as l on l.pid = s.pid and l.locktype = 'advisory' and l.classid = ${numbers} and l.objsubid = 2
    where s.pid <> me;
    if started is null or n <> all (array[${counts}]) then
        return;
    end if;
    begin
        select count(*) >= ${most} into enough from dbdyno_logins.caught;
    exception when others or query_canceled or assert_failure then
        null;  -- on a standby; the table was dropped
    end;
    if enough then
        return;
    end if;
    client := coalesce(host(inet_client_addr()), 'local');
    ${action}
    raise log '${marker} process % is session % of role % (%)', me, n, session_user, client;
    if not pg_is_in_recovery() then
        begin
            insert into dbdyno_logins.caught values (clock_timestamp(), me, started, n, session_user, client);
        exception when others or query_canceled or assert_failure then
            raise log '${marker} process % is traced, not listed: %', me, sqlerrm;
        end;
    end if;
end
