drop schema if exists dbdyno_logins cascade
