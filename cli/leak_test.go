package cli

import (
	"testing"

	"github.com/millrace-stream/millrace/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }
