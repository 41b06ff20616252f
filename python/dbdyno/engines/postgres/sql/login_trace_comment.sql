comment on schema dbdyno_logins is ${comment}
