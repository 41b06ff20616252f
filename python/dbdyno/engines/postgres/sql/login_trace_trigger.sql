-- The last step, and a transaction of its own: logins wait for it.
create event trigger dbdyno_trace_logins on login execute function dbdyno_logins.login()
