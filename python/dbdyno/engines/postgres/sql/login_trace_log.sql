-- Where the server's log is.
select pg_catalog.current_setting('log_destination'), pg_catalog.current_setting('log_line_prefix'),
       pg_catalog.current_setting('data_directory'), pg_catalog.pg_current_logfile()
