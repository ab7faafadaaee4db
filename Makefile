# Holdfast: make help tells what there is.
GO       ?= go
BUDGET   ?= 5m
DATA     ?= $(CURDIR)/data
SEED     ?= 1
SIM_BUDGET ?= 10m
SIM_FIRST  ?= 1000
WORLD_BUDGET ?= 10m
WORLD_FIRST  ?= 1000
ROUNDS   ?= 10
ONLY     ?=
PKG      := ./...
PLATFORMS := windows/amd64 darwin/arm64 freebsd/amd64 linux/386
# Packages without goroutines run without the race detector: nothing to find,
# and it costs them ten times the time. So do worlds and what measures sizes; their code is raced elsewhere.
PURE     := ./internal/core/... ./crdt/... ./guard ./guard/guardfile/... ./limit/... ./internal/session/... ./internal/watch/... ./internal/deadline/... ./internal/node/storage/... ./internal/node/replica/... ./internal/node/disk/... ./internal/node/admission/... ./internal/sim/... ./internal/size/... ./internal/world/...
# Tests of the program start hundreds of processes, and a raced one takes five times the processor time of another: a part of
# them is raced all the same, and what the processes do beneath the program is raced in the packages that do it.
PROGRAM  := ./internal/cli
PROGRAM_RACED := TestScripts/(lock|session|signals|kinds|limit|killed|lost)$$|TestServe$$|TestServe_(Limit|TLS|ChecksByItself)$$|TestServerKilled|TestSessionKeep|TestKilled_|TestCuts|TestPipeline_Left|TestEdge|TestGroup$$|TestSnapshot$$
# The packages that take longest begin first, so that none of them runs alone at the end.
LONGEST  := ./pghold ./redishold ./internal/node/api ./natshold ./server ./pipeline/run ./remote
RACED     = $(shell $(GO) list $(LONGEST)) $(filter-out $(shell $(GO) list $(PURE) $(LONGEST) $(PROGRAM)),$(shell $(GO) list ./...))
# Checkers that run for a minute collect garbage less often: a third less processor time. So do tests: a quarter less.
ROOMY    := GOGC=400 GOMEMLIMIT=3GiB
ROOMY_TEST := GOGC=400 GOMEMLIMIT=1GiB

.DEFAULT_GOAL := help
.PHONY: help run tour demo test pure program raced check deps bench bench-sizes bench-peers bench-servers planted mutate prove sim operators worlds proto

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

run: bin/holdfast ## start a node of your own on 127.0.0.1:7420 and print what to try; ^C stops it
	@bin/holdfast serve --data $(DATA)

tour: ## a short tour on files, with real processes; ends by itself
	@$(GO) run ./examples/tour

demo: ## three edge nodes that share a rate limit, on a NATS server of their own; ends by itself
	@$(GO) run ./examples/edge

bin/holdfast: FORCE
	@$(GO) build -o bin/holdfast ./cmd/holdfast

FORCE:

test: deps ## everything that must pass before a change lands
	@$(MAKE) --no-print-directory check GOFLAGS=-race # what vet compiles serves the raced tests too
	@$(MAKE) --no-print-directory -j 3 pure program raced

pure:
	$(ROOMY_TEST) $(GO) test -vet=off -timeout 30m -p 1 $(PURE) # beside the raced ones, which mostly wait; check vets all

program:
	$(ROOMY_TEST) $(GO) test -vet=off -timeout 30m $(PROGRAM)
	$(ROOMY_TEST) $(GO) test -vet=off -timeout 30m -race -run '$(PROGRAM_RACED)' $(PROGRAM)

raced:
	$(ROOMY_TEST) $(GO) test -vet=off -timeout 30m -race -p 3 $(RACED)

check: bin/staticcheck ## format, vet, staticcheck; other platforms
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not gofmt'ed: $$out"; exit 1; fi
	$(ROOMY_TEST) $(GO) vet $(PKG)
	$(ROOMY) bin/staticcheck $(PKG)
	$(ROOMY_TEST) $(GO) vet -C bench ./...
	cd bench && $(ROOMY) ../bin/staticcheck ./...
	GOFLAGS= $(ROOMY) $(GO) run ./internal/platforms $(PLATFORMS) # types only: to vet them all would compile every dependency for each

bin/staticcheck: tools/go.mod tools/go.sum
	GOFLAGS= $(GO) build -C tools -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck # never raced: it would take five times as long

deps: ## install what the tests need and the machine lacks (as root, on Debian)
	@command -v gcc >/dev/null || { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends gcc libc6-dev; } \
		|| { echo "the race detector needs a C compiler: install gcc and libc6-dev"; exit 1; }
	$(GO) run ./internal/services/install

bench: ## measure, beside a baseline in the same run; writes the head of docs/benchmarks.md
	$(GO) run ./internal/measure bench

bench-sizes: ## measure one node and three with a million keys, holds and waiters; writes its section of docs/benchmarks.md
	$(GO) run ./internal/measure sizes

bench-peers: ## measure beside redsync, rueidislock, redis_rate and bare PostgreSQL; writes its section of docs/benchmarks.md
	$(GO) test -C bench -count=1 -v -timeout 60m -bench.rounds=20 -bench.scale=1 -bench.into=../docs/benchmarks.md .

bench-servers: bin/staticcheck ## measure the server beside etcd, ZooKeeper, Redis and PostgreSQL, ROUNDS=10; writes its section of docs/benchmarks.md; ONLY=hand-over for a part
	$(GO) vet -C bench/servers ./...
	cd bench/servers && ../../bin/staticcheck ./...
	$(GO) test -C bench/servers -count=1 -v -timeout 120m -bench.rounds=$(ROUNDS) -bench.scale=1 $(if $(ONLY),-run 'TestServers/$(ONLY)') -bench.into=../../docs/benchmarks.md .

planted: ## prove that the tests still catch the bugs they were written for
	$(GO) run ./internal/planted

mutate: ## change the code at random for BUDGET=5m, in the order of SEED=1, in PKG=internal/node/disk or all, and list what no test notices
	nice -n 19 $(GO) run ./internal/mutate -budget $(BUDGET) -seed $(SEED) $(filter-out ./...,$(PKG))

prove: ## the long proofs, BUDGET=5m each; writes docs/proofs.md
	$(GO) run ./internal/measure prove -budget $(BUDGET)

sim: ## simulate new seeds for SIM_BUDGET=10m, from SIM_FIRST on
	$(GO) test ./internal/sim -run TestSeeds -v -timeout 24h -sim.budget=$(SIM_BUDGET) -sim.first=$(SIM_FIRST)

operators: ## simulate operators: any command at any time, and lost disks, for SIM_BUDGET=10m, from SIM_FIRST on
	nice -n 19 $(GO) test ./internal/sim -run TestOperators -v -timeout 24h -sim.budget=$(SIM_BUDGET) -sim.first=$(SIM_FIRST)

worlds: ## run worlds of production nodes on new seeds for WORLD_BUDGET=10m, from WORLD_FIRST on
	$(GO) test ./internal/world -run TestWorlds -v -timeout 24h -world.budget=$(WORLD_BUDGET) -world.first=$(WORLD_FIRST)

proto: bin/protoc-gen-go ## generate the Go code of proto/ anew (needs protoc: Debian's protobuf-compiler)
	PATH=$(CURDIR)/bin:$$PATH protoc -I proto --go_out=proto --go_opt=paths=source_relative --go-grpc_out=proto --go-grpc_opt=paths=source_relative \
		--connect-go_out=proto --connect-go_opt=paths=source_relative,simple $$(cd proto && ls holdfast/v1/*.proto holdfast/edge/v1/*.proto)

bin/protoc-gen-go: tools/go.mod tools/go.sum
	$(GO) build -C tools -o ../bin/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc connectrpc.com/connect/cmd/protoc-gen-connect-go
