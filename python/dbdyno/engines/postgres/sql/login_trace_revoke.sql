revoke all on all functions in schema dbdyno_logins from public
