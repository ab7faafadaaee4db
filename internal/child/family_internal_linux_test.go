package child

import (
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
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

// The number of a group that is gone is not signalled any more: it may be another's.
func TestFamily_ForgetsTheNumber(t *testing.T) {
	c := exec.Command("true")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	looked, signalled := family{group: c.Process.Pid}, family{group: c.Process.Pid}
	if looked.alive() || looked.group != 0 {
		t.Errorf("after a look it has the group %d", looked.group)
	}
	if err := signalled.signal(syscall.SIGKILL); err != syscall.ESRCH || signalled.group != 0 {
		t.Errorf("after a signal, %v, it has the group %d", err, signalled.group)
	}
}

// That nobody lives is not believed at the first look.
func TestFamily_LooksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := family{mark: rand.Text()}
		if f.alive() || time.Since(begin) != breath {
			t.Errorf("nobody was found within %s", time.Since(begin))
		}
	})
}

// What left the group of a command goes on if that had ended before it was to end, and ends with it otherwise; the
// warden is told once.
func TestSettle(t *testing.T) {
	for script, want := range map[string]string{"exit": "spare", "read word": "ending"} {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command("sh", "-c", script)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		hold, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if want == "spare" {
			AwaitEnd(t, c.Process.Pid)
		}
		r := &running{Command: &Command{}, warden: &warden{stdin: out}, kin: family{group: c.Process.Pid}, mark: rand.Text()}
		r.signal(syscall.SIGCONT) // which ends nothing
		r.stop()
		r.settle()
		hold.Close()
		_ = c.Wait()
		out.Close()
		if told, err := io.ReadAll(in); err != nil || string(told) != want+"\n" || (r.kin.mark == "") != (want == "spare") {
			t.Errorf("%s: the warden is told %q, %v; the mark is %q", script, told, err, r.kin.mark)
		}
		in.Close()
	}
}

// AwaitEnd returns when a process has ended, and leaves it unburied.
func AwaitEnd(t *testing.T, id int) {
	t.Helper()
	if _, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(id), 0, syscall.WEXITED|syscall.WNOWAIT, 0, 0); errno != 0 {
		t.Fatal(errno)
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
