package cli

import (
	"maps"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/blackhole"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/filesystem"
	"github.com/millrace-stream/millrace/connector/http"
	"github.com/millrace-stream/millrace/connector/kafka"
	"github.com/millrace-stream/millrace/connector/print"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/format/avro"
	"github.com/millrace-stream/millrace/format/jsonschema"
	"github.com/millrace-stream/millrace/format/protobuf"
)

// formats are how rows can be written, by the option 'format'.
func formats() format.RowFormats {
	all := format.RowFormats{
		"csv":           format.CSVRows(),
		"json":          format.JSONRows(),
		"raw":           format.RawRows(),
		"debezium-json": format.DebeziumRows(),
		"canal-json":    format.CanalRows(),
		"maxwell-json":  format.MaxwellRows(),
	}
	maps.Copy(all, avro.Formats())
	maps.Copy(all, jsonschema.Formats())
	maps.Copy(all, protobuf.Formats())
	return all
}

// connectors are what tables may stand for, by the option 'connector'. They ask cluster which topics there are; nil = none can be
// asked, and offline says that the script is not run then.
func (o *Options) connectors(cluster connector.Cluster, offline bool) connector.Registry {
	f := formats()
	topics := kafka.Options{Formats: f, Cluster: cluster, Offline: offline}
	all := connector.Registry{
		"blackhole":    blackhole.New(),
		"datagen":      datagen.New(),
		"filesystem":   filesystem.New(f),
		"http":         http.New(f),
		"kafka":        kafka.New(topics),
		"print":        print.New(),
		"upsert-kafka": kafka.NewUpsert(topics),
	}
	maps.Copy(all, o.Connectors)
	return all
}
