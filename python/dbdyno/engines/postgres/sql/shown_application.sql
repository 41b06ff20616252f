-- An application_name as the server will show it: it replaces what is not ASCII, and cuts at 63 bytes.
select left(pg_catalog.set_config('application_name', $1::text, true), 63)
