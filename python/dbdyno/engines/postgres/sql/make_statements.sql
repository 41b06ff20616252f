-- The extension that reads the statements' counters, where the server counts them.
do $$
begin
    if pg_catalog.current_setting('pg_stat_statements.max', true) is not null
       and not exists (select from pg_catalog.pg_extension where extname = 'pg_stat_statements') then
        create extension pg_stat_statements schema public;
    end if;
end
$$
