# Millrace. `make help` lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tests are built as the release is: static and without this folder's path. One build cache serves both.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath

GO      ?= go
BIN     := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
# The library's version and the command's.
LDFLAGS := -s -w -X github.com/millrace-stream/millrace.version=$(VERSION) -X main.version=$(VERSION) -X main.commit=$(COMMIT)

GOLANGCI_VERSION := v2.15.0
GOLANGCI         := $(BIN)/golangci-lint

# Test binaries that may run at once: integration tests start a JVM each.
P          ?= 2
TESTFLAGS  ?=
# Packages with goroutines, and those that these drive.
RACE := ./txn/... ./internal/engine/... ./internal/task/... ./statestore/... ./processor/... ./checkpoint/... ./internal/adhoc ./connector/datagen ./connector/filesystem ./connector/http ./connector/kafka ./connector/print ./format/... ./sql/shell
FUZZTIME ?= 20s
# Seeds of the simulation in soak, and how often its long tests on real brokers run.
SEEDS    ?= 20000
ROUNDS   ?= 5
# Random SQL queries with their data that soak compares, and random streams for each operator of package processor.
PAIRS    ?= 50000
STREAMS  ?= 2000

.PHONY: help
help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-12s %s\n", $$1, $$2 }'

.PHONY: build
build: ## Build the static binary bin/millrace
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/millrace ./cmd/millrace

.PHONY: test
test: kafka-jars s3-server schema-registry ## Run all tests, on real Kafka brokers, a real S3 server and a real schema registry too, then the core again under the race detector
	$(GO) test -p $(P) -timeout 10m $(TESTFLAGS) ./...
	$(GO) test -tags synctests -timeout 10m $(TESTFLAGS) ./internal/sim
	$(GO) test -tags synctests,canary -timeout 10m $(TESTFLAGS) -run TestCanaries ./internal/sim ./sql/sqltest/naive
	CGO_ENABLED=1 MILLRACE_SKIP_KAFKA=1 MILLRACE_SKIP_S3=1 MILLRACE_SKIP_REGISTRY=1 $(GO) test -race -short -p $(P) -timeout 10m $(TESTFLAGS) $(RACE)

.PHONY: test-short
test-short: ## Run the tests that need no broker, no other server and little time
	MILLRACE_SKIP_KAFKA=1 MILLRACE_SKIP_S3=1 MILLRACE_SKIP_REGISTRY=1 $(GO) test -short -p $(P) -timeout 5m $(TESTFLAGS) ./...
	$(GO) test -short -tags synctests -timeout 5m $(TESTFLAGS) ./internal/sim

.PHONY: soak
soak: kafka-jars s3-server ## Run SEEDS (20000) seeds of the simulation, PAIRS (50000) random SQL queries, STREAMS (2000) random streams for each operator and ROUNDS (5) of the long tests on real brokers: about four hours
	MILLRACE_SIM_SEEDS=$(SEEDS) $(GO) test -tags synctests -timeout 6h $(TESTFLAGS) -run TestSim ./internal/sim
	MILLRACE_SQL_SEEDS=$(PAIRS) $(GO) test -timeout 6h $(TESTFLAGS) -run TestRandomQueries ./sql/sqltest/naive
	MILLRACE_MODEL_SEEDS=$(STREAMS) $(GO) test -timeout 6h $(TESTFLAGS) ./processor
	MILLRACE_TEST_SOAK=1 $(GO) test -timeout 6h -count $(ROUNDS) $(TESTFLAGS) -run 'TestThreeBrokers|TestChaos' ./test/integration
	MILLRACE_TEST_SOAK=1 $(GO) test -timeout 2h $(TESTFLAGS) -run 'TestKillSeries|TestClusterComesBackOlder' ./test/integration

.PHONY: kafka-jars
kafka-jars: ## Fetch the jars of the Kafka brokers for the tests (needs Maven, once)
	$(GO) run ./test/kafka/fetch

.PHONY: s3-server
s3-server: ## Build the S3 server of the tests (a few minutes, once)
	$(GO) run ./test/s3/fetch

.PHONY: schema-registry
schema-registry: ## Fetch the schema registry of the tests (needs Maven, once)
	$(GO) run ./test/registry/fetch

.PHONY: lint
lint: $(GOLANGCI) ## Check formatting, vet, golangci-lint and the rules of internal/lint
	@unformatted="$$(gofmt -l $$(git ls-files '*.go'))"; if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GOLANGCI) run ./...
	$(GO) test ./internal/lint

# The version is in the file's name, so that a new one is built when it changes.
$(GOLANGCI): $(BIN)/.golangci-lint-$(GOLANGCI_VERSION)
$(BIN)/.golangci-lint-$(GOLANGCI_VERSION):
	@echo "building golangci-lint $(GOLANGCI_VERSION) (a minute or two, once)"
	mkdir -p $(BIN)
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	touch $@

.PHONY: fmt
fmt: ## Format the code
	gofmt -w $$(git ls-files '*.go')

.PHONY: bench
bench: ## Compare with the peers on a real broker, about 45 minutes; WHAT, PEERS, REPEAT as in test/bench/run.sh
	test/bench/run.sh

.PHONY: bench-nexmark
bench-nexmark: ## Compare SQL with Flink's on the queries of Nexmark, about 30 minutes; QUERIES, PEERS as in test/bench/run.sh
	WHAT=nexmark test/bench/run.sh

.PHONY: bench-go
bench-go: ## Run the Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (20s)
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

.PHONY: demo
demo: ## Run the demo: an embedded broker, a kill, a verdict
	$(GO) run ./cmd/millrace demo

.PHONY: docker
docker: ## Build the container image millrace:VERSION
	docker build --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) -t millrace:$(VERSION) .

.PHONY: clean
clean: ## Remove what was built here
	rm -rf $(BIN) dist
