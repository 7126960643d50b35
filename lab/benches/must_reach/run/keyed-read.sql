-- Reads by key, in an order that jumps about.
.timer on
WITH RECURSIVE n(i, id) AS
  (SELECT 1, 1 UNION ALL SELECT i + 1, (id * 69069 + 12345) % @ROWS@ + 1 FROM n WHERE i < @READS@)
SELECT 'check ' || sum(length(text) + rows.id) FROM n JOIN rows USING (id);
.timer off
.quit
