-- Rows of about 450 bytes in a database in memory.
CREATE TABLE rows (id INTEGER PRIMARY KEY, changes INT, text TEXT);
.timer on
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < @ROWS@)
INSERT INTO rows SELECT i, 0, hex(zeroblob(200)) || i FROM n;
.timer off
.print ready
