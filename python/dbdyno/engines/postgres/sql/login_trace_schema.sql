-- Of the superuser who installs it, and nobody else may use it: its function runs with that one's rights.
create schema dbdyno_logins
