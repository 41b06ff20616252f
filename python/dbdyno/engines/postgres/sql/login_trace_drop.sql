drop event trigger if exists dbdyno_trace_logins
