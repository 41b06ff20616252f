-- An application_name as the server shows it: non-ASCII characters are replaced, and it is cut at 63 bytes.
select left(pg_catalog.set_config('application_name', $1::text, true), 63)
