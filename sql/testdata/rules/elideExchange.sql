CREATE TABLE keyed (id BIGINT, v INT) WITH ('keyed' = 'id');
SELECT id, COUNT(DISTINCT v) FROM keyed GROUP BY id;
