CREATE TABLE orders (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 'orders', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json',
  'properties.isolation.level' = 'read_committed', 'properties.max.poll.records' = '5', 'properties.session.timeout.ms' = '9000', 'scan.watermark.emit.strategy' = 'on-event');
CREATE TABLE copies (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 'copies', 'format' = 'json', 'sink.delivery-guarantee' = 'at-least-once', 'sink.parallelism' = '4');
INSERT INTO copies SELECT id FROM orders;
