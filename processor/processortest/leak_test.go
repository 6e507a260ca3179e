package processortest_test

import (
	"testing"

	"github.com/millrace-stream/millrace/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }
