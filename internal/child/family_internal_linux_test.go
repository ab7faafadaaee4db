package child

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A warden is not taken for a part of the command that its holdfast is: it has to outlive that.
func TestWarden_HasNoMark(t *testing.T) {
	t.Setenv(markName, "OUTER")
	w, err := startWarden(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer w.end()
	if has(w.cmd.Process.Pid, "OUTER") {
		t.Error("it has the mark of the command that started it")
	}
	env := marked(os.Environ(), "INNER")
	if slices.Contains(env, markName+"=OUTER") || !slices.Contains(env, markName+"=INNER") {
		t.Errorf("a command within a command has %q", env)
	}
}

// What does not end is not looked at all the time: about once a second after a while, and often at first.
func TestAwait_Rests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, looks, early := time.Now(), 0, 0
		await(func() bool {
			if looks++; time.Since(begin) < 100*time.Millisecond {
				early++
			}
			return time.Since(begin) > time.Hour
		})
		if looks > 3700 || early < 5 {
			t.Errorf("%d looks in an hour, %d in its first tenth of a second", looks, early)
		}
	})
}

// A warden without a command, after the deadline, rests ever longer; one that is told of a command looks at once.
func TestWarden_Rests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch{clock: time.NewTimer(time.Hour), pause: breath}
		defer w.clock.Stop()
		w.heed(order{word: "until", left: -time.Hour})
		begin := time.Now()
		for range 200 {
			<-w.clock.C
			if w.late() {
				t.Fatal("there is no command")
			}
		}
		if since := time.Since(begin); since < 2*time.Minute {
			t.Errorf("200 looks within %s", since)
		}
		before := time.Now()
		w.heed(order{word: "group", process: os.Getpid()})
		<-w.clock.C
		if since := time.Since(before); since > 0 || !w.late() {
			t.Errorf("a command that begins after the deadline is seen after %s", since)
		}
	})
}
