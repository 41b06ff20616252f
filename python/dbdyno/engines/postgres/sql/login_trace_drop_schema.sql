-- What was made, and nothing else: what others added keeps the schema there, with an error.
drop function if exists dbdyno_logins.login();
drop function if exists dbdyno_logins.trace();
drop table if exists dbdyno_logins.caught;
drop schema if exists dbdyno_logins
