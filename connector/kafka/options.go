package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// options are those of the connector.
func (k *kafka) options() []format.Option {
	opt := func(name string, kind format.OptionKind, def, doc string, values ...string) format.Option {
		return format.Option{Name: name, Kind: kind, Default: def, Doc: doc, Values: values}
	}
	none := func(name string, kind format.OptionKind, def, why string, values ...string) format.Option {
		o := opt(name, kind, def, "No effect: "+why+".", values...)
		o.NoEffect = why
		return o
	}
	o := []format.Option{
		opt("topic", format.List, "", "The topic; of a table that is read alone, several with ; between them."),
		opt("properties.*", format.Text, "", "Properties of Kafka's Java client. Those that say how to reach the cluster are taken, those that only tune the Java client have no effect, and others are refused: see the list."),
		none("scan.parallelism", format.Integer, "", "the number of subtasks follows from the partitions and the configuration (parallelism)"),
		opt("scan.watermark.idle-timeout", format.Duration, "0", "So long after its last record a partition no longer holds event time back. 0 = never, or what SET 'table.exec.source.idle-timeout' says."),
		none("scan.watermark.emit.strategy", format.Enum, "on-event", "a watermark follows each record", "on-event", "on-periodic"),
		none("scan.watermark.emit.on-event.gap", format.Integer, "1", "a watermark follows each record"),
		none("scan.watermark.alignment.group", format.Text, "", "of the partitions of a subtask the records go by event time, as far as they are at hand"),
		none("scan.watermark.alignment.max-drift", format.Duration, "", "see scan.watermark.alignment.group"),
		none("scan.watermark.alignment.update-interval", format.Duration, "1 s", "see scan.watermark.alignment.group"),
		opt("on-error", format.Enum, "", "What becomes of a record that cannot be decoded, or a row that cannot be written: the app stops, the record is left out and counted, or it goes to the topic <app.id>-dead-letter. Without it the configuration says so (errors.decode). Not in Flink.", "fail", "skip", "dead-letter"),
		none("sink.parallelism", format.Integer, "", "rows are written by the subtasks that made them"),
		none("sink.delivery-guarantee", format.Enum, "exactly-once", "rows are always written exactly once, in the transaction that commits what they were made of", "exactly-once", "at-least-once", "none"),
		none("sink.transactional-id-prefix", format.Text, "", "transactional ids begin with app.id"),
		none("sink.transaction-naming-strategy", format.Text, "", "transactional ids belong to subtasks"),
	}
	bounded := []string{"unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"}
	o = append(o,
		opt("scan.bounded.mode", format.Enum, "unbounded", "Where reading ends: never; behind the last record at the first start; at the offsets that properties.group.id has committed; before the first record of scan.bounded.timestamp-millis or later; at scan.bounded.specific-offsets. An app all of whose tables have ended commits and ends.", bounded...),
		opt("scan.bounded.timestamp-millis", format.Integer, "", "The time of scan.bounded.mode timestamp, in ms since 1970."),
		opt("scan.bounded.specific-offsets", format.Text, "", "The ends of scan.bounded.mode specific-offsets, each the offset of the first record that is not read: partition:0,offset:42;partition:1,offset:300. Of other partitions nothing is read."))
	if k.upsert {
		key := opt("key.format", format.Text, "", "The format of keys: the columns of the PRIMARY KEY.")
		value := opt("value.format", format.Text, "", "The format of values.")
		key.Required, value.Required = true, true
		o = append(o, key, value,
			none("scan.topic-partition-discovery.interval", format.Duration, "5 min", "partitions that are added are seen by themselves"),
			none("sink.buffer-flush.max-rows", format.Integer, "0", "rows are written with the next commit"),
			none("sink.buffer-flush.interval", format.Duration, "0", "rows are written with the next commit (commit.max-latency)"))
	} else {
		o = append(o,
			opt("topic-pattern", format.Text, "", "A regular expression for the whole names of the topics that are read, instead of topic."),
			opt("scan.topic-partition-discovery.interval", format.Duration, "5 min", "How often topics are looked for that match topic-pattern and came later; 0 = only when the app starts. Partitions that are added are seen by themselves."),
			opt("format", format.Text, "", "The format of values; the same as value.format."),
			opt("value.format", format.Text, "", "The format of values."),
			opt("key.format", format.Text, "", "The format of keys; with key.fields."),
			opt("key.fields", format.List, "", "The columns that are the record's key, with ; between them."),
			opt("scan.startup.mode", format.Enum, "group-offsets", "Where reading begins at the first start of the app: at the first record; behind the last; at the offsets that properties.group.id has committed, and without one as properties.auto.offset.reset says; at the first record of scan.startup.timestamp-millis or later; at scan.startup.specific-offsets. Later starts go on where the app was.", "earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
			opt("scan.startup.timestamp-millis", format.Integer, "", "The time of scan.startup.mode timestamp, in ms since 1970."),
			opt("scan.startup.specific-offsets", format.Text, "", "The offsets of scan.startup.mode specific-offsets: partition:0,offset:42;partition:1,offset:300. Other partitions begin at their first record."),
			opt("sink.partitioner", format.Text, "default", "Where records go: default (by the hash of the key as Kafka's default partitioner has it; without a key to the partition that the row came from), fixed (each subtask writes to one partition), or round-robin."))
	}
	return append(o,
		opt("partitioned-by", format.Enum, "", "key promises that records lie on partitions by their key as Kafka's default partitioner puts them (murmur2), and that equal values of the columns of the key are always written as the same bytes. Operators by these columns then need no repartition topic. A record that lies elsewhere stops the app. Not in Flink.", "key"),
		opt("key.fields-prefix", format.Text, "", "A prefix of the names of the key's columns, which the fields of the key do not have; for tables whose key and value have fields of the same name. With value.fields-include EXCEPT_KEY."),
		opt("value.fields-include", format.Enum, "ALL", "Whether the value has the columns of the key too (ALL), or only the others (EXCEPT_KEY).", "ALL", "EXCEPT_KEY"))
}

// used is a format as a table uses it.
type used struct {
	format.RowFormat
	spec format.RowFormatSpec
	// columns are ordinals of the table's columns that messages have, and names those of their fields.
	columns []int
	names   []string
}

// message is all that messages have.
func (u *used) message(t *catalog.Table) []row.Field {
	fields := make([]row.Field, len(u.columns))
	for i, c := range u.columns {
		fields[i] = row.Field{Name: u.names[i], Type: t.Columns[c].Type}
	}
	return fields
}

// table is a table whose options were read.
type table struct {
	connector.Table
	o        *format.Options
	upsert   bool
	topics   []string
	pattern  *regexp.Regexp
	key      used // without a format if records have no key
	value    used
	keyed    []int
	onError  processor.Policy
	settings map[string]string
	client   properties
}

// subject gives the options with the subject under which a format with a schema registry has its schema: as in Flink it is
// the topic's name and -value or -key, unless the table says otherwise.
func (k *kafka) subject(options map[string]string, prefix, name, ending string) map[string]string {
	topic := options["topic"]
	option := prefix + name + ".subject"
	if _, set := options[option]; set || topic == "" || strings.Contains(topic, ";") ||
		!slices.ContainsFunc(k.Formats[name].Options, func(o format.Option) bool { return o.Name == "subject" }) {
		return options
	}
	options = maps.Clone(options)
	options[option] = topic + ending
	return options
}

// read reads and checks the options of a table, all that does not depend on whether it is read or written.
func (k *kafka) read(t connector.Table) (*table, error) {
	x := &table{Table: t, upsert: k.upsert}
	value := cmp.Or(t.Options["value.format"], t.Options["format"])
	key := t.Options["key.format"]
	prefixes := []string{"key." + key + ".", "value." + value + "."}
	valuePrefix := "value."
	if _, ok := t.Options["value.format"]; !ok {
		valuePrefix = ""
		prefixes[1] = value + "."
	}
	var err error
	if x.o, err = connector.Options(t.Options, k.options(), prefixes...); err != nil {
		return nil, err
	}
	if value == "" {
		return nil, errors.New("option 'format' is missing; name the format of values, such as 'json'")
	}
	if x.o.Has("value.format") && !k.upsert && x.o.Has("format") {
		return nil, errors.New("options 'format' and 'value.format' say the same; set one of them")
	}
	if x.value.RowFormat, x.value.spec, err = connector.Format(k.Formats, k.subject(t.Options, valuePrefix, value, "-value"), valuePrefix, value); err != nil {
		return nil, err
	}
	if key != "" {
		if x.key.RowFormat, x.key.spec, err = connector.Format(k.Formats, k.subject(t.Options, "key.", key, "-key"), "key.", key); err != nil {
			return nil, err
		}
		if x.key.spec.Changes {
			return nil, fmt.Errorf("option 'key.format' = '%s': a key is no change; take a format such as 'json'", key)
		}
	}
	if x.client, x.settings, err = readProperties(x.o.Prefixed("properties.")); err != nil {
		return nil, err
	}
	switch x.o.Text("on-error") {
	case "fail":
		x.onError = processor.Fail
	case "skip":
		x.onError = processor.Skip
	case "dead-letter":
		x.onError = processor.DeadLetter
	}
	if err := x.readTopics(); err != nil {
		return nil, err
	}
	if err := x.readColumns(); err != nil {
		return nil, err
	}
	return x, x.checkMetadata()
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (x *table) readTopics() error {
	x.topics = x.o.List("topic")
	for i, name := range x.topics {
		if !topicName.MatchString(name) || name == "." || name == ".." {
			return fmt.Errorf("option 'topic': '%s' is no name of a topic, which has 1 to 249 of a-z, A-Z, 0-9, ., _ and -", name)
		}
		if slices.Contains(x.topics[:i], name) {
			return fmt.Errorf("option 'topic' names %s twice", name)
		}
	}
	switch {
	case x.upsert && len(x.topics) != 1:
		return fmt.Errorf("option 'topic' must name one topic, and has %d", len(x.topics))
	case x.upsert:
	case x.o.Has("topic-pattern") && len(x.topics) > 0:
		return errors.New("options 'topic' and 'topic-pattern' exclude each other")
	case x.o.Has("topic-pattern"):
		re, err := regexp.Compile("^(?:" + x.o.Text("topic-pattern") + ")$")
		if err != nil {
			return fmt.Errorf("option 'topic-pattern': %w", err)
		}
		x.pattern = re
	case len(x.topics) == 0:
		return errors.New("option 'topic' is missing: name the topic, or, of a table that is read, a 'topic-pattern'")
	}
	return nil
}

// readColumns finds which columns are in keys and which in values.
func (x *table) readColumns() error {
	exceptKey := x.o.Text("value.fields-include") == "EXCEPT_KEY"
	prefix := x.o.Text("key.fields-prefix")
	if prefix != "" && !exceptKey {
		return errors.New("option 'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY': with ALL the value would have the same columns under their prefixed names")
	}
	var keys []int
	if x.upsert {
		if len(x.Table.Table.Key) == 0 {
			return errors.New("an upsert-kafka table needs a PRIMARY KEY (...) NOT ENFORCED: its columns are the key of the records")
		}
		keys = x.Table.Table.Key
		if x.value.spec.Changes {
			return fmt.Errorf("option 'value.format' = '%s': the format tells changes itself; use it with the connector 'kafka', or take a format such as 'json'", x.o.Text("value.format"))
		}
	} else {
		for _, name := range x.o.List("key.fields") {
			i := x.Table.Column(name)
			if i < 0 || x.Table.Table.Columns[i].Kind != catalog.Physical {
				return fmt.Errorf("option 'key.fields': the table has no physical column %s", name)
			}
			keys = append(keys, i)
		}
		switch {
		case len(keys) == 0 && x.key.RowFormat != nil:
			return errors.New("option 'key.format' needs 'key.fields', the columns that are the key")
		case len(keys) > 0 && x.key.RowFormat == nil:
			return errors.New("option 'key.fields' needs 'key.format', how the key is written")
		case len(keys) == 0 && exceptKey:
			return errors.New("option 'value.fields-include' = 'EXCEPT_KEY' needs 'key.fields'")
		case len(x.Table.Table.Key) > 0 && !x.value.spec.Changes:
			return errors.New("a kafka table whose format tells no changes cannot have a PRIMARY KEY, since each record is a row of its own; take the connector 'upsert-kafka', or leave the PRIMARY KEY out")
		}
		if x.o.Text("partitioned-by") == "key" {
			if len(keys) == 0 {
				return errors.New("option 'partitioned-by' = 'key' needs 'key.fields'")
			}
			x.keyed = keys
		}
	}
	for _, c := range keys {
		name, ok := strings.CutPrefix(x.Table.Table.Columns[c].Name, prefix)
		if !ok {
			return fmt.Errorf("option 'key.fields-prefix' = '%s': column %s of the key does not begin so", prefix, x.Table.Table.Columns[c].Name)
		}
		x.key.columns, x.key.names = append(x.key.columns, c), append(x.key.names, name)
	}
	if x.upsert && x.o.Text("partitioned-by") == "key" {
		x.keyed = keys
	}
	for c := range x.Table.Table.Columns {
		col := &x.Table.Table.Columns[c]
		if col.Kind == catalog.Physical && !(exceptKey && slices.Contains(keys, c)) {
			x.value.columns, x.value.names = append(x.value.columns, c), append(x.value.names, col.Name)
		}
	}
	return nil
}

// start is where reading begins.
func (x *table) start(topics int) (processor.Start, error) {
	if x.upsert {
		return processor.Earliest, nil
	}
	mode := x.o.Text("scan.startup.mode")
	at, offsets, err := x.companions("scan.startup", mode, topics)
	if err != nil {
		return processor.Start{}, err
	}
	switch mode {
	case "earliest-offset":
		return processor.Earliest, nil
	case "latest-offset":
		return processor.Latest, nil
	case "timestamp":
		return processor.At(at), nil
	case "specific-offsets":
		return processor.Offsets(offsets), nil
	}
	switch {
	case x.client.reset == "earliest":
		return processor.Committed(x.client.group, processor.Earliest), nil
	case x.client.reset == "latest":
		return processor.Committed(x.client.group, processor.Latest), nil
	case x.client.group == "":
		return processor.Start{}, errors.New("the table does not say where to begin: without 'scan.startup.mode' that is where 'properties.group.id' has committed, and there is none; set 'scan.startup.mode' = 'earliest-offset' or another one, or 'properties.group.id'")
	}
	return processor.Committed(x.client.group, processor.Nowhere), nil
}

// end is where reading ends.
func (x *table) end(topics int) (processor.End, error) {
	mode := x.o.Text("scan.bounded.mode")
	at, offsets, err := x.companions("scan.bounded", mode, topics)
	if err != nil {
		return processor.End{}, err
	}
	switch mode {
	case "latest-offset":
		return processor.EndLatest, nil
	case "timestamp":
		return processor.EndAt(at), nil
	case "specific-offsets":
		return processor.EndOffsets(offsets), nil
	case "group-offsets":
		if x.client.group == "" {
			return processor.End{}, errors.New("option 'scan.bounded.mode' = 'group-offsets' needs 'properties.group.id', the group whose offsets are meant")
		}
		return processor.EndCommitted(x.client.group), nil
	}
	return processor.End{}, nil
}

// companions are the options that belong to a mode: each must be there with its mode, and may not with another.
func (x *table) companions(prefix, mode string, topics int) (at time.Time, offsets map[int32]int64, err error) {
	names := map[string]string{"timestamp": prefix + ".timestamp-millis", "specific-offsets": prefix + ".specific-offsets"}
	for _, m := range []string{"specific-offsets", "timestamp"} {
		switch has := x.o.Has(names[m]); {
		case has && mode != m:
			return at, nil, fmt.Errorf("option '%s' needs '%s.mode' = '%s', and that is '%s'", names[m], prefix, m, mode)
		case !has && mode == m:
			return at, nil, fmt.Errorf("option '%s.mode' = '%s' needs '%s'", prefix, mode, names[m])
		}
	}
	switch mode {
	case "timestamp":
		at = time.UnixMilli(x.o.Int(names[mode]))
	case "specific-offsets":
		if topics != 1 {
			return at, nil, fmt.Errorf("option '%s' names partitions and no topics, and the table has %d topics", names[mode], topics)
		}
		offsets, err = parseOffsets(x.o.Text(names[mode]))
		if err != nil {
			err = fmt.Errorf("option '%s': %w", names[mode], err)
		}
	}
	return at, offsets, err
}

// parseOffsets reads partition:0,offset:42;partition:1,offset:300.
func parseOffsets(text string) (map[int32]int64, error) {
	offsets := map[int32]int64{}
	for _, part := range strings.Split(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		p, o, _ := strings.Cut(part, ",")
		p, ok1 := strings.CutPrefix(strings.TrimSpace(p), "partition:")
		o, ok2 := strings.CutPrefix(strings.TrimSpace(o), "offset:")
		partition, err1 := strconv.ParseInt(p, 10, 32)
		offset, err2 := strconv.ParseInt(o, 10, 64)
		if !ok1 || !ok2 || err1 != nil || err2 != nil || partition < 0 || offset < 0 {
			return nil, fmt.Errorf("'%s' is not as it must be: partition:0,offset:42;partition:1,offset:300", part)
		}
		if _, ok := offsets[int32(partition)]; ok {
			return nil, fmt.Errorf("partition %d is named twice", partition)
		}
		offsets[int32(partition)] = offset
	}
	if len(offsets) == 0 {
		return nil, errors.New("it names no partition")
	}
	return offsets, nil
}

// keyForm says how the keys of records are written: equal values have equal keys in all tables of one form. Of formats with
// schemas that is not known before records are read, and the form is the table's own.
func (x *table) keyForm() string {
	name := x.o.Text("key.format")
	form := []string{name}
	switch name {
	case "raw", "json", "csv":
	default:
		form = append(form, x.Table.Path.String())
	}
	for i, c := range x.key.columns {
		if name != "raw" {
			form = append(form, x.key.names[i])
		}
		form = append(form, x.Table.Table.Columns[c].Type.Plain().String())
	}
	for _, o := range slices.Sorted(maps.Keys(x.Table.Options)) {
		if strings.HasPrefix(o, "key.") && !strings.HasPrefix(o, "key.fields") {
			form = append(form, o, x.Table.Options[o])
		}
	}
	return strings.Join(form, " ")
}
