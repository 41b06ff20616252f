-- Rounds of a million, because the counter of a FOR loop is a 4-byte integer. Volatile: never folded into a plan.
create function dbdyno.spin(iterations bigint) returns bigint
language plpgsql volatile strict
as $$
declare
    total bigint := 0;
begin
    for round in 1 .. (iterations / 1000000)::int loop
        for i in 1 .. 1000000 loop
            total := total + 1;
        end loop;
    end loop;
    for i in 1 .. (iterations % 1000000)::int loop
        total := total + 1;
    end loop;
    return total;
end
$$
