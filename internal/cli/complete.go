package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/hostlist"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// A shell that waits for words must not hang, nor be given more than anybody reads.
const (
	completeWithin = 2 * time.Second
	completeMost   = 200
)

// completeArguments tells the shell's completion which words the arguments of the
// commands can be.
func (a *app) completeArguments(root *cobra.Command) {
	for family, kind := range map[string]driver.ResourceKind{"counter": driver.Counter, "seq": driver.Sequence, "limit": driver.Limiter} {
		for _, c := range commandAt(root, family).Commands() {
			c.ValidArgsFunction = one(a.names(kind))
		}
	}
	for path, words := range map[string]cobra.CompletionFunc{
		"lock": a.before(a.names(driver.Mutex)), "rlock": a.before(a.names(driver.RWMutex)), "wlock": a.before(a.names(driver.RWMutex)),
		"sem": a.before(a.names(driver.Semaphore)), "elect": a.before(a.names(driver.Election)), "run": a.before(a.names()),
		"show": one(a.names()), "release": one(a.names()), "ls": one(a.names()), "watch": one(a.names()),
		"kv get": one(a.keys()), "kv put": one(a.keys()), "kv delete": one(a.keys()), "kv ls": one(a.keys()),
		"session ls": one(a.names()), "session show": one(a.sessionIDs()), "session revoke": one(a.sessionIDs()),
		"member promote": one(a.memberIDs()), "member remove": one(a.memberIDs()), "member lead": one(a.memberIDs()),
		"member update": one(a.memberIDs()), "member replace": one(a.memberIDs()), "member unfreeze": one(a.memberIDs()),
		"bench": cobra.FixedCompletions(workloadNames(), cobra.ShellCompDirectiveNoFileComp),
	} {
		commandAt(root, path).ValidArgsFunction = words
	}
	for flag, words := range map[string]cobra.CompletionFunc{
		"run --lock": a.names(driver.Mutex), "run --read": a.names(driver.RWMutex), "run --write": a.names(driver.RWMutex),
		"run --sem":     assigned(a.names(driver.Semaphore)),
		"run --limiter": a.names(driver.Limiter),
		"kv ls --sort":  cobra.FixedCompletions(slices.Sorted(maps.Keys(orders)), cobra.ShellCompDirectiveNoFileComp),
	} {
		path, name, _ := strings.Cut(flag, " --")
		must(commandAt(root, path).RegisterFlagCompletionFunc(name, words))
	}
}

// commandAt is a command that there is.
func commandAt(root *cobra.Command, path string) *cobra.Command {
	c, rest, err := root.Find(strings.Fields(path))
	if err != nil || len(rest) > 0 {
		panic("there is no command " + path)
	}
	return c
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// before completes what stands before --; behind it is a command of the system.
func (a *app) before(words cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if slices.Contains(a.words, "--") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return words(cmd, args, begin)
	}
}

// one completes a single argument.
func one(words cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(cmd, args, begin)
	}
}

// assigned completes a word that a value follows.
func assigned(words cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		found, directive := words(cmd, args, begin)
		for i, c := range found {
			name, about, _ := strings.Cut(c, "\t")
			found[i] = cobra.CompletionWithDesc(name+"=", about)
		}
		return found, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// finder yields words that begin so, each with what it is.
type finder = func(ctx context.Context, s *holdfast.Space, begin string) iter.Seq2[[2]string, error]

// asked completes by asking the backend. One that is not there completes nothing:
// a shell has no place for an error.
func (a *app) asked(find finder) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		err := a.eachWord(cmd, find, begin, func(word, about string) bool {
			if !slices.Contains(args, word) && !strings.ContainsFunc(word, unicode.IsControl) {
				found = append(found, cobra.CompletionWithDesc(word, about))
			}
			return len(found) < completeMost
		})
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// eachWord calls yield for every word, until it says no.
func (a *app) eachWord(cmd *cobra.Command, find finder, begin string, yield func(word, about string) bool) error {
	if err := errors.Join(a.settle(cmd), a.isThere()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(a.timeout, completeWithin))
	defer cancel()
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	for w, err := range find(ctx, s, begin) {
		if err != nil || !yield(w[0], w[1]) {
			return err
		}
	}
	return nil
}

// isThere keeps a question from making the directory that it asks about.
func (a *app) isThere() error {
	where, err := a.backend()
	if err != nil {
		return err
	}
	u, err := hostlist.Parse(where)
	if err != nil || u.Scheme != "file" && u.Scheme != "embed" {
		return err
	}
	if _, err := os.Stat(u.Path); errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// names completes names of the kinds, or of any.
func (a *app) names(kinds ...driver.ResourceKind) cobra.CompletionFunc {
	return a.asked(func(ctx context.Context, s *holdfast.Space, begin string) iter.Seq2[[2]string, error] {
		return func(yield func([2]string, error) bool) {
			for r, err := range s.List(ctx, begin) {
				if fits := len(kinds) == 0 || slices.Contains(kinds, r.Kind); (fits || err != nil) && !yield([2]string{r.Name, aboutName(r)}, err) {
					return
				}
			}
		}
	})
}

func aboutName(r holdfast.Resource) string {
	about := r.Kind.String()
	if r.Kind == driver.Semaphore {
		return about + fmt.Sprintf(", %d of %d used", r.Used, r.Limit)
	}
	if len(r.Holders) > 0 && r.Holders[0].Owner != "" {
		about += ", held by " + shown([]byte(r.Holders[0].Owner))
	}
	return about
}

// keys completes keys.
func (a *app) keys() cobra.CompletionFunc {
	return a.asked(func(ctx context.Context, s *holdfast.Space, begin string) iter.Seq2[[2]string, error] {
		return func(yield func([2]string, error) bool) {
			for e, err := range s.KV().Range(ctx, begin, holdfast.KeysOnly(), holdfast.MaxKeys(completeMost)) {
				if !yield([2]string{e.Key}, err) {
					return
				}
			}
		}
	})
}

// sessionIDs completes the sessions that hold, wait for or keep something.
func (a *app) sessionIDs() cobra.CompletionFunc {
	return a.asked(func(ctx context.Context, s *holdfast.Space, begin string) iter.Seq2[[2]string, error] {
		return func(yield func([2]string, error) bool) {
			found, err := sessionsOf(ctx, s, "", a.keysUnder(ctx, func() time.Duration { return completeWithin }, s, ""), func() {})
			if err != nil {
				yield([2]string{}, err)
			}
			for _, j := range found {
				if strings.HasPrefix(j.ID, begin) && !yield([2]string{j.ID, shown([]byte(j.Owner))}, nil) {
					return
				}
			}
		}
	})
}

// memberIDs completes the numbers of a group's nodes.
func (a *app) memberIDs() cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		err := a.settle(cmd)
		a.timeout = min(a.timeout, completeWithin)
		err = errors.Join(err, a.reading(func(ctx context.Context, c pb.AdminServiceClient, _ []string) error {
			list, err := a.membersOf(ctx, c)
			if err != nil {
				return err
			}
			for _, m := range list {
				if id := strconv.FormatUint(m.GetId(), 10); strings.HasPrefix(id, begin) {
					found = append(found, cobra.CompletionWithDesc(id, m.GetClientAddress()))
				}
			}
			return nil
		})(cmd, args))
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
