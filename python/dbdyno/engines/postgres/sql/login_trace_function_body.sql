-- What each login calls. Of other roles it asks for the name, and no more. Whatever goes wrong is a line in the log: an
-- error in here would refuse the login. All names are qualified: it runs with its owner's rights.
begin
    if session_user operator(pg_catalog.=) ${role}::pg_catalog.name then
        if pg_catalog.lower(pg_catalog.current_setting('dbdyno.trace_logins', true))
           operator(pg_catalog.=) any (array['off', 'false', 'no', '0']) then
            return;
        end if;
        perform pg_catalog.pg_try_advisory_xact_lock_shared(${lock});  -- so that it is seen who stays in here
        perform dbdyno_logins.trace();
    end if;
exception when others or query_canceled or assert_failure then
    raise log '${marker} process % is not traced: % (%)', pg_catalog.pg_backend_pid(), sqlerrm, sqlstate;
end
