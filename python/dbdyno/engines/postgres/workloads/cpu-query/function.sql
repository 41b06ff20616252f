-- A call that counted other rows than it should has not done the work: it fails.
create function dbdyno.verified(counted bigint, expected bigint) returns bigint
language plpgsql immutable strict
as $$
begin
    if counted <> expected then
        raise exception 'cpu-query counted % rows, not %', counted, expected;
    end if;
    return counted;
end
$$
