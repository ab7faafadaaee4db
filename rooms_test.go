package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the prefix of our own imports.
const module = "github.com/holdfast-io/holdfast"

// room says what a package's own files (not its tests) may import.
type room struct {
	// own lists packages of this module, by directory; "." is the root.
	own string
	// foreign lists modules of others, by import path prefix.
	foreign string
	// pure rooms decide and do nothing else: no goroutine, channel, clock,
	// random number or I/O.
	pure bool
	// plain rooms answer calls and know no protocol: no network and no HTTP. Of gRPC
	// they know nothing either, since it is not in foreign.
	plain bool
	// inside: not meant for users, so it needs no Example.
	inside bool
}

// rooms is the door list. A new package adds one line here; that line is what a
// review looks at first.
var rooms = map[string]room{
	".":                                    {own: "driver internal/bridge internal/owner internal/until limit"},
	"all":                                  {own: "filehold memhold natshold pghold redishold remote server", inside: true},
	"cmd/holdfast":                         {own: "internal/cli", inside: true},
	"crdt":                                 {pure: true},
	"driver":                               {own: "internal/deadline internal/hostlist limit"},
	"driver/onstore":                       {own: "driver internal/deadline internal/gaveup internal/limits internal/policy limit"},
	"drivertest":                           {own: ". driver limit"},
	"edge":                                 {own: "crdt limit"},
	"edge/edgetest":                        {},
	"edge/natslink":                        {own: "crdt driver edge internal/causes internal/hostlist internal/natsconn internal/trust", foreign: "github.com/klauspost/compress github.com/nats-io/nats.go"},
	"examples/edge":                        {own: "edge edge/natslink limit", foreign: "github.com/nats-io/nats-server/v2", inside: true},
	"examples/tour":                        {own: ". fence filehold", inside: true},
	"examples/toyhold":                     {own: "driver driver/onstore"},
	"fence":                                {own: "driver"},
	"fence/fenceredis":                     {own: "driver fence", foreign: "github.com/redis/rueidis"},
	"filehold":                             {own: ". driver internal/barrier internal/convert internal/core internal/filelog internal/gaveup internal/policy internal/watch"},
	"guard":                                {pure: true},
	"guard/gather":                         {own: ". driver guard internal/strictjson limit"},
	"guard/manager":                        {own: ". driver guard guard/gather internal/strictjson"},
	"guard/guardtest":                      {own: "guard guard/gather"},
	"guard/guardfile":                      {own: "guard internal/strictjson pipeline", foreign: "go.yaml.in/yaml/v4"},
	"holdtest":                             {own: ". internal/bridge memhold"},
	"internal/backends":                    {own: ". all internal/node/api internal/services server", inside: true},
	"internal/barrier":                     {own: "driver", inside: true},
	"internal/bridge":                      {own: "driver", inside: true},
	"internal/causes":                      {inside: true},
	"internal/child":                       {own: "driver", inside: true},
	"internal/cli":                         {own: ". all crdt driver drivertest edge edge/natslink guard guard/gather guard/guardfile pipeline pipeline/run internal/child internal/edgeserver internal/hostlist internal/limits internal/node/address internal/node/admission internal/node/api internal/node/disk internal/node/replica internal/node/storage internal/owner internal/wire limit proto/holdfast/v1 remote server", foreign: "github.com/spf13/cobra github.com/spf13/pflag google.golang.org/grpc", inside: true},
	"internal/client":                      {own: "driver internal/barrier internal/convert internal/core internal/gaveup internal/session internal/until internal/watch", inside: true},
	"internal/contest":                     {pure: true, inside: true},
	"internal/convert":                     {own: "driver internal/core", inside: true},
	"internal/core":                        {own: "limit", pure: true},
	"internal/core/coretest/check":         {own: "internal/core internal/core/coretest/twin", inside: true},
	"internal/core/coretest/gen":           {own: "internal/core internal/core/coretest/twin", inside: true},
	"internal/core/coretest/script":        {own: "internal/core internal/core/coretest/twin", inside: true},
	"internal/core/coretest/twin":          {own: "internal/core", pure: true, inside: true},
	"internal/deadline":                    {pure: true},
	"internal/edgeserver":                  {own: "edge internal/causes limit limit/limithttp proto/holdfast/edge/v1 proto/holdfast/edge/v1/edgev1connect", foreign: "connectrpc.com/connect github.com/prometheus/client_golang", inside: true},
	"internal/filelog":                     {own: "driver", inside: true},
	"internal/gaveup":                      {own: "driver", inside: true},
	"internal/host":                        {own: "internal/core", inside: true},
	"internal/hostlist":                    {inside: true},
	"internal/kthtrip":                     {own: ". driver limit", inside: true},
	"internal/limits":                      {own: "driver limit", inside: true},
	"internal/measure":                     {inside: true},
	"internal/middleware":                  {own: "limit", inside: true},
	"internal/mutate":                      {inside: true},
	"internal/natsconn":                    {own: "driver internal/trust", foreign: "github.com/nats-io/nats.go", inside: true},
	"internal/node/address":                {pure: true},
	"internal/node/admission":              {own: "internal/core", pure: true},
	"internal/node/api":                    {own: "driver internal/host internal/node/dialect/rest internal/node/dialect/rpc internal/node/gateway internal/node/relay server", foreign: "github.com/prometheus/client_golang google.golang.org/grpc", inside: true},
	"internal/node/dialect/rest":           {own: "driver guard internal/core internal/limits internal/node/admission internal/node/gateway internal/node/relay internal/strictjson internal/watch internal/wire limit proto/holdfast/v1", foreign: "google.golang.org/protobuf", inside: true},
	"internal/node/dialect/rpc":            {own: "driver internal/node/admission internal/node/gateway internal/node/relay internal/session internal/wire proto/holdfast/v1 proto/holdfast/v1/holdfastv1connect server", foreign: "connectrpc.com/connect google.golang.org/grpc google.golang.org/protobuf", inside: true},
	"internal/node/disk":                   {own: "internal/core internal/node/replica internal/node/storage", foreign: "go.etcd.io/raft/v3"},
	"internal/node/gateway":                {own: "driver guard guard/guardfile internal/convert internal/core internal/node/address internal/node/admission internal/node/replica internal/session internal/watch internal/wire limit proto/holdfast/v1 server", foreign: "github.com/prometheus/client_golang google.golang.org/protobuf", inside: true, plain: true},
	"internal/node/relay":                  {own: "internal/node/gateway internal/wire", foreign: "google.golang.org/grpc google.golang.org/protobuf", inside: true},
	"internal/node/replica":                {own: "internal/core internal/node/address internal/node/admission internal/session", foreign: "go.etcd.io/raft/v3 google.golang.org/protobuf", pure: true},
	"internal/node/storage":                {foreign: "golang.org/x/sys"},
	"internal/node/storage/simdisk":        {own: "internal/node/storage"},
	"internal/node/transport":              {},
	"internal/owner":                       {inside: true},
	"internal/pasted":                      {inside: true},
	"internal/planted":                     {inside: true},
	"internal/platforms":                   {inside: true},
	"internal/policy":                      {own: "driver", inside: true},
	"internal/services":                    {own: "internal/services/programs", foreign: "github.com/jackc/pgx/v5 github.com/nats-io/nats-server/v2", inside: true},
	"internal/services/install":            {own: "internal/services/programs", inside: true},
	"internal/services/programs":           {inside: true},
	"internal/session":                     {own: "internal/core internal/deadline", pure: true},
	"internal/sim":                         {own: "internal/core internal/deadline internal/node/disk internal/node/replica internal/node/storage internal/node/storage/simdisk internal/session internal/watch limit", foreign: "go.etcd.io/raft/v3"},
	"internal/size":                        {inside: true},
	"internal/strictjson":                  {inside: true},
	"internal/trust":                       {inside: true},
	"internal/until":                       {inside: true},
	"internal/watch":                       {own: "internal/core", pure: true},
	"internal/wire":                        {own: "driver proto/holdfast/v1", foreign: "google.golang.org/grpc google.golang.org/protobuf", inside: true},
	"internal/world":                       {own: ". driver internal/core internal/host internal/node/replica internal/node/storage internal/node/storage/simdisk internal/watch internal/wire proto/holdfast/v1 remote server server/api", foreign: "google.golang.org/grpc google.golang.org/protobuf", inside: true},
	"limit":                                {pure: true},
	"limit/limitgrpc":                      {own: "internal/middleware limit", foreign: "google.golang.org/genproto google.golang.org/grpc google.golang.org/protobuf"},
	"limit/limithttp":                      {own: "internal/middleware limit"},
	"limit/limitlocal":                     {own: "limit"},
	"memhold":                              {own: ". driver internal/client internal/core internal/session internal/watch"},
	"natshold":                             {own: "driver driver/onstore internal/natsconn internal/trust", foreign: "github.com/nats-io/nats.go"},
	"pghold":                               {own: ". driver internal/barrier internal/gaveup internal/limits internal/policy limit", foreign: "github.com/jackc/pgx/v5"},
	"pipeline":                             {own: "guard", pure: true},
	"pipeline/run":                         {own: ". driver guard guard/gather internal/causes limit pipeline"},
	"proto/holdfast/edge/v1":               {foreign: "google.golang.org/grpc google.golang.org/protobuf", inside: true},
	"proto/holdfast/edge/v1/edgev1connect": {own: "proto/holdfast/edge/v1", foreign: "connectrpc.com/connect", inside: true},
	"proto/holdfast/v1":                    {foreign: "google.golang.org/grpc google.golang.org/protobuf", inside: true},
	"proto/holdfast/v1/holdfastv1connect":  {own: "proto/holdfast/v1", foreign: "connectrpc.com/connect", inside: true},
	"redishold":                            {own: ". driver internal/barrier internal/gaveup internal/limits internal/policy internal/trust limit", foreign: "github.com/redis/rueidis"},
	"remote":                               {own: ". driver internal/client internal/core internal/host internal/session internal/trust internal/watch internal/wire proto/holdfast/v1", foreign: "google.golang.org/grpc"},
	"server":                               {own: ". driver internal/client internal/convert internal/core internal/host internal/node/address internal/node/admission internal/node/disk internal/node/replica internal/node/storage internal/node/transport internal/session internal/watch"},
	"server/api":                           {own: "internal/node/api server"},
}

// pureStd is what a pure room may use of the standard library. time is for
// durations; its clock and timers are looked for by name.
var pureStd = set(`bytes cmp container/heap crypto/sha256 encoding/binary errors fmt hash/crc32 hash/fnv
	io/fs iter maps math math/bits net/netip path slices sort strconv strings time unicode unicode/utf8 unsafe`)

func set(s string) map[string]bool {
	m := map[string]bool{}
	for _, f := range strings.Fields(s) {
		m[f] = true
	}
	return m
}

// file is one parsed Go file.
type file struct {
	path string // slash-separated, from the root
	dir  string
	test bool
	ast  *ast.File
}

// tree is all of the module's Go files.
type tree struct {
	fset  *token.FileSet
	files []file
}

// parsed is what source has parsed. Tests that count on many collections of garbage
// forget it, since each would go through all of it.
var parsed *tree

// source is the tree, parsed once for several tests, which only read it.
func source(t *testing.T) (*token.FileSet, []file) {
	t.Helper()
	if parsed == nil {
		whole, err := parseTree()
		if err != nil {
			t.Fatal(err)
		}
		parsed = whole
	}
	return parsed.fset, parsed.files
}

// parseTree parses the tree itself: a test that asked the go command would be
// answered from the cache after a forbidden import was added.
func parseTree() (*tree, error) {
	whole := &tree{fset: token.NewFileSet()}
	return whole, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || foreignModule(path)) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(whole.fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		whole.files = append(whole.files, file{filepath.ToSlash(path), filepath.ToSlash(filepath.Dir(path)), strings.HasSuffix(path, "_test.go"), f})
		return nil
	})
}

func foreignModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func TestEveryRoomKeepsItsDoorList(t *testing.T) {
	_, files := source(t)
	for _, f := range files {
		r, ok := rooms[f.dir]
		if !ok {
			t.Errorf("%s: the package %s has no line in rooms_test.go", f.path, f.dir)
			continue
		}
		if f.test {
			continue
		}
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if reason := r.forbids(path); reason != "" {
				t.Errorf("%s imports %s: %s", f.path, path, reason)
			}
		}
	}
}

func (r room) forbids(path string) string {
	switch {
	case path == module || strings.HasPrefix(path, module+"/"):
		dir := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		if dir == "" {
			dir = "."
		}
		if !set(r.own)[dir] {
			return "that room is not on its door list"
		}
	case strings.Contains(strings.Split(path, "/")[0], "."):
		for prefix := range set(r.foreign) {
			if path == prefix || strings.HasPrefix(path, prefix+"/") {
				return ""
			}
		}
		return "library packages use the standard library only"
	case r.plain && (path == "net" || strings.HasPrefix(path, "net/")):
		return "a plain room knows no protocol"
	case r.pure && !pureStd[path]:
		return "a pure room has no use for it"
	}
	return ""
}

// impure is what of package time reads a clock or waits.
var impure = set("time.Now time.Since time.Until time.Sleep time.After time.AfterFunc time.Tick time.NewTimer time.NewTicker")

func TestPureRoomsAreQuiet(t *testing.T) {
	fset, files := source(t)
	for _, f := range files {
		if f.test || !rooms[f.dir].pure {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if what := noise(n); what != "" {
				t.Errorf("%s: %s in a pure room", fset.Position(n.Pos()), what)
			}
			return true
		})
	}
}

func noise(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a goroutine"
	case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
		return "a channel"
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && impure[x.Name+"."+n.Sel.Name] {
			return x.Name + "." + n.Sel.Name
		}
	}
	return ""
}

// The naive twin is worth nothing if it calls what it checks.
func TestTwinUsesOnlyTypesOfCore(t *testing.T) {
	fset, files := source(t)
	words := map[string]bool{}
	for _, f := range files {
		if f.dir == "internal/core" && !f.test {
			addTypesAndConstants(words, f.ast)
		}
	}
	for _, f := range files {
		if f.dir != "internal/core/coretest/twin" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "core" && (!words[sel.Sel.Name] || sel.Sel.Name == "Machine") {
				t.Errorf("%s: the twin uses core.%s, which is neither a plain type nor a constant", fset.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}

func addTypesAndConstants(words map[string]bool, f *ast.File) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE && g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				words[s.Name.Name] = true
			case *ast.ValueSpec:
				for _, n := range s.Names {
					words[n.Name] = true
				}
			}
		}
	}
}

func TestEveryPackageIsIntroduced(t *testing.T) {
	_, files := source(t)
	doc, example := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		if !f.test && f.ast.Doc.Text() != "" {
			doc[f.dir] = true
		}
		if f.test && hasExample(f.ast) {
			example[f.dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(rooms)) {
		if !doc[dir] {
			t.Errorf("%s: no package comment", dir)
		}
		if !rooms[dir].inside && !example[dir] {
			t.Errorf("%s: no Example with output", dir)
		}
	}
}

func hasExample(f *ast.File) bool {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if ok && strings.HasPrefix(fn.Name.Name, "Example") {
			return true
		}
	}
	return false
}

// patient lists where tests may sleep between two looks at something outside
// their process (the kernel too), which sends no event.
var patient = set("edge/natslink filehold internal/services memhold natshold pghold redishold server")

// Tests here wait for events, or run in fake time; and they all run.
func TestTestsNeitherSleepNorSkip(t *testing.T) {
	fset, files := source(t)
	for _, f := range files {
		if !f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch sel.Sel.Name {
			case "Skip", "SkipNow", "Skipf":
				if x.Name == "t" || x.Name == "b" || x.Name == "tb" {
					t.Errorf("%s: a test that is skipped", fset.Position(n.Pos()))
				}
			case "Sleep":
				if x.Name == "time" && !importsSynctest(f.ast) && !patient[f.dir] {
					t.Errorf("%s: a test that sleeps in real time", fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

func importsSynctest(f *ast.File) bool {
	return slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"testing/synctest"` })
}
