package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-io/holdfast/internal/cli"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/services"
)

// raceEnds keeps programs with the race detector from sleeping for a second when
// they end.
const raceEnds = "atexit_sleep_ms=0"

// played are the programs that scripts and tests find in their PATH.
var played = map[string]func(){
	"holdfast": func() { os.Exit(cli.Main(os.Args[1:])) },
	// The program as it was one version ago.
	"holdfast-before": func() {
		host.Here = &host.Host{Newest: core.EntryVersion - 1}
		os.Exit(cli.Main(os.Args[1:]))
	},
}

// TestMain plays the programs, too.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", raceEnds)
	testscript.Main(heeding{services.Main(m)}, played)
}

// heeding runs the tests so that their programs hear SIGHUP, also under nohup. It is
// asked for once and never stopped: after a Stop, signal.Ignored is wrong.
type heeding struct{ testscript.TestingM }

func (h heeding) Run() int {
	if ossignal.Ignored(syscall.SIGHUP) {
		ossignal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return h.TestingM.Run()
}

// The scripts tell what the program does, each on a directory of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata",
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  exits,
			"awaits": awaits,
			"signal": signalIt,
		},
		RequireExplicitExec: true,
	})
}

func setup(e *testscript.Env) error {
	for name, dir := range map[string]string{"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "HOME": "home"} {
		e.Setenv(name, filepath.Join(e.WorkDir, dir))
	}
	e.Setenv("GORACE", raceEnds)
	e.Setenv("HOLDFAST_URL", "file://"+filepath.Join(e.WorkDir, "space"))
	return nil
}

// exits CODE PROGRAM ARGUMENT… runs a program that has to exit with the code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// awaits NAME returns when somebody waits for the name.
func awaits(ts *testscript.TestScript, _ bool, args []string) {
	for waiting := false; !waiting; {
		ts.Check(ts.Exec("holdfast", "--json", "show", args[0]))
		var seen struct{ Waiters []struct{} }
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &seen))
		waiting = len(seen.Waiters) > 0
	}
}

// signal NAME FILE sends the signal to the process whose number is in the file.
func signalIt(ts *testscript.TestScript, _ bool, args []string) {
	pid := ts.ReadFile(args[1])
	ts.Check(ts.Exec("sh", "-c", "kill -"+args[0]+" "+pid))
}
