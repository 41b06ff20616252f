vacuum (freeze, analyze) ${table}
