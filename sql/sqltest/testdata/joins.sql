-- A retracting table, and one that is looked up.
CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert');
CREATE TABLE rates (currency STRING, rate DOUBLE) WITH ('connector' = 'append');
CREATE TABLE orders (id BIGINT, customer BIGINT, currency STRING, amount DOUBLE, items ARRAY<ROW<sku STRING, n INT>>, seen AS PROCTIME()) WITH ('connector' = 'append');
CREATE TABLE named (id BIGINT, name STRING, amount DOUBLE, items ARRAY<ROW<sku STRING, n INT>>) WITH ('connector' = 'all');
INSERT INTO named SELECT o.id, c.name, o.amount * r.rate, o.items FROM orders o
  JOIN rates FOR SYSTEM_TIME AS OF o.seen AS r ON r.currency = o.currency
  LEFT JOIN customers c ON c.id = o.customer;
