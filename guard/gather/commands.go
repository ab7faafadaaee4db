package gather

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// Commands run the commands of custom_check. Exit code 0 is yes, 1 is no, and everything
// else an error of the check; the end of what was said is in the reason.
//
// A text from a condition is one of the names in Named, or a program with arguments that
// are parted by blanks, without quotes: no shell reads it. Characters that mean something
// to a shell are refused, unless Shell is set.
type Commands struct {
	// Named are commands by name, each with its arguments.
	Named map[string][]string
	// OnlyNamed refuses every other text.
	OnlyNamed bool
	// Shell lets sh read the text. Set it only if all conditions are your own.
	Shell bool
	// Dir is where commands run; empty: the working directory.
	Dir string
	// Env is the whole environment; nil: PATH, HOME, LANG, TMPDIR and USER of this one.
	Env []string
	// Timeout is the longest a command may run; default 10 s, and never longer than the
	// Gatherer's. (The program holdfast sets both to its --timeout, 30 s by default.) Its process group is ended then.
	Timeout time.Duration
	// Every is how often a command is run while somebody waits for it; default 30 s. Looks at the same moment share one run.
	Every time.Duration

	facts shared[guard.Input, guard.Fact]
}

// maxOutput is how much of what a command says is kept.
const maxOutput = 64 << 10

// commandsAtOnce is how many commands run at a time: some that hang keep no others from being run.
const commandsAtOnce = 64

// Find runs the commands.
func (s *Commands) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	return eachOf(ctx, commandsAtOnce, inputs, func(ctx context.Context, in guard.Input) (guard.Fact, error) {
		argv, err := s.argv(in.Name)
		if err != nil {
			return guard.Fact{}, err
		}
		return s.facts.ask(ctx, in, func() (guard.Fact, error) { return s.run(ctx, argv) })
	})
}

// Follow has them run again every so often.
func (s *Commands) Follow(ctx context.Context, wanted func() []guard.Input, changed func(...guard.Input)) {
	poll(ctx, orElse(s.Every, 30*time.Second), wanted, changed)
}

func orElse(d, other time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return other
}

func (s *Commands) argv(text string) ([]string, error) {
	if argv := s.Named[text]; len(argv) > 0 {
		return argv, nil
	}
	words := strings.Fields(text)
	switch {
	case s.OnlyNamed:
		return nil, fmt.Errorf("the command %q is not one of those that may be run", text)
	case s.Shell:
		return []string{"sh", "-c", text}, nil
	case strings.ContainsAny(text, "'\"`$\\;&|<>*?[]{}()!#~\n"):
		return nil, fmt.Errorf("the command %q has characters of a shell, and none reads it: put it into a script, or allow a shell", text)
	case len(words) == 0 || strings.HasPrefix(words[0], "-"):
		return nil, fmt.Errorf("the command %q names no program", text)
	}
	return words, nil
}

func (s *Commands) run(ctx context.Context, argv []string) (guard.Fact, error) {
	ctx, cancel := context.WithTimeout(ctx, orElse(s.Timeout, 10*time.Second))
	defer cancel()
	p := process{of: strings.Join(argv, " "), argv: argv, dir: s.Dir, env: s.Env, most: maxOutput}
	if p.env == nil {
		p.env = plainEnv()
	}
	a, err := p.run(ctx)
	if err == nil {
		err = based(ctx, s.Dir, "")
	}
	said := lastLine(a.out + "\n" + a.errOut)
	f := guard.Fact{Is: a.code == 0, From: argv[0], Text: said}
	switch {
	case err != nil && said != "":
		return f, fmt.Errorf("%w; it said: %s", err, said)
	case err == nil && a.code > 1:
		return f, fmt.Errorf("%s: exit code %d: %s", argv[0], a.code, said)
	}
	return f, err
}

// plainEnv is an environment without the secrets and settings of this one.
func plainEnv() (env []string) {
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "USER", "SYSTEMROOT"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
