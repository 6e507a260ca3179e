CREATE TABLE orders (id BIGINT, amount DOUBLE) WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json');
CREATE TABLE copied (id BIGINT, amount DOUBLE) WITH ('connector' = 'blackhole');
INSERT INTO copied SELECT id, amuont FROM orders;
INSERT INTO copeid SELECT id, amount FROM orders;
