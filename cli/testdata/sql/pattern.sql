CREATE TABLE orders (id BIGINT) WITH ('connector' = 'kafka', 'topic-pattern' = 'orders-.*', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE copies (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 'copies', 'format' = 'json');
INSERT INTO copies SELECT id FROM orders;
