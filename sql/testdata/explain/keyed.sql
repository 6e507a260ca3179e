CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT) WITH ('keyed' = 'auction');
CREATE TABLE auction (id BIGINT, category INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('keyed' = 'id', 'upsert' = 'true');
CREATE TABLE person (id INT, name STRING) WITH ('keyed' = 'id');
CREATE TABLE top (auction BIGINT, category INT, price BIGINT, bidders BIGINT, PRIMARY KEY (auction, category) NOT ENFORCED);
CREATE TABLE names (auction BIGINT, name STRING) WITH ('append' = 'true');
INSERT INTO top SELECT auction, category, MAX(price), COUNT(DISTINCT bidder) FROM bid JOIN auction ON auction = id GROUP BY auction, category;
INSERT INTO names SELECT auction, name FROM bid JOIN person ON bidder = person.id;
