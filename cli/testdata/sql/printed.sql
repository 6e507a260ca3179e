CREATE TABLE g (id BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE p (id BIGINT) WITH ('connector' = 'print');
INSERT INTO p SELECT id FROM g;
