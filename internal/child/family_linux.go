package child

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// markName is the variable in the environment of a command, and so of all that it starts, which tells one command's
// processes from all others.
const markName = "HOLDFAST_WARDEN"

// marked is an environment with a mark.
func marked(env []string, mark string) []string { return append(unmarked(env), markName+"="+mark) }

// unmarked is an environment without a mark: a warden is no part of the command that has started its holdfast, and
// must outlive that.
func unmarked(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, markName+"=") })
}

// family is a command with what it has started: its process group, and what has left that (setsid) and has its mark.
type family struct {
	group int    // 0: there is none, or none any more
	mark  string // empty: the group alone
}

// alive reports that one of them lives. By their mark, none is believed after a second look only: a process that is about
// to execute another program has no environment for a moment, and one that starts another and ends may be missed with it.
func (f *family) alive() bool {
	switch {
	case f.seen():
		return true
	case f.mark == "":
		return false
	}
	time.Sleep(breath)
	return f.seen()
}

func (f *family) seen() bool {
	if _ = f.signalGroup(0); f.group == 0 && f.mark == "" {
		return false
	}
	for p := range processes() {
		if f.group != 0 && p.group == f.group || f.mark != "" && has(p.id, f.mark) {
			return true
		}
	}
	return false
}

// signal signals all of them; the error is that of the group.
func (f *family) signal(s syscall.Signal) error {
	err := f.signalGroup(s)
	for id := range f.strays() {
		_ = syscall.Kill(id, s) // one that has ended meanwhile needs none
	}
	return err
}

// signalGroup signals the group until it is gone with its first process: the number of that is another's then.
func (f *family) signalGroup(s syscall.Signal) error {
	if f.group == 0 {
		return nil
	}
	err := syscall.Kill(-f.group, s)
	if err == syscall.ESRCH {
		f.group = 0
	}
	return err
}

// led reports that the first process of the group, the command itself, lives.
func (f *family) led() bool {
	_, lives := lookAt(f.group)
	return lives
}

// strays are those outside of the group, each with its mark read just before. One of another user is not found, as one that has cleared its environment.
func (f *family) strays() iter.Seq[int] {
	return func(yield func(int) bool) {
		if f.mark == "" {
			return
		}
		for p := range processes() {
			if p.group != f.group && has(p.id, f.mark) && !yield(p.id) {
				return
			}
		}
	}
}

// has reports that a process was started with a mark.
func has(id int, mark string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id))
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+markName+"="+mark+"\x00"))
}

// breath is the first pause between two looks at what is ending: the end of another's child sends no event.
const breath = 5 * time.Millisecond

// slower is the pause after a pause. What has not ended for long, as a process of another user that no signal
// reaches, is looked at once a second.
func slower(pause time.Duration) time.Duration { return min(pause+pause/8, glance) }

// await looks until it is over.
func await(over func() bool) {
	for pause := breath; !over(); pause = slower(pause) {
		time.Sleep(pause)
	}
}
