-- Sets the hint bits of every row.
select count(pad) from ${table}
