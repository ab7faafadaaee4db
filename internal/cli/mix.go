package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
)

// mix is what run takes together.
type mix struct {
	shared               bool
	limit                int64
	locks, reads, writes []string
	sems                 []string
	limiters             []string
	key                  string
}

func (a *app) runCommand() *cobra.Command {
	m := &mix{}
	var wants []part
	h := &holding{a: a, take: func(ctx context.Context, s *holdfast.Space, _ []string, try bool) (*holdfast.Hold, error) {
		return acquireAll(ctx, s, wantsOf(s, wants), try)
	}}
	c := h.command(&cobra.Command{
		Use:   "run [NAME…] -- COMMAND…",
		Short: "Run a command while holding any mix of locks and semaphores",
		Long: `Run a command while holding everything that is named, taken together or not at
all: NAMEs as locks (with --shared as a reader, with -n as semaphores of that
limit), and others by flag. Limiters are asked last, when everything is held: the
command starts when each of them has allowed it.` + aboutHolding,
		Example: `  holdfast run nightly -- ./backup.sh
  holdfast run --shared config -- ./report.sh
  holdfast run -n 3 gpu -- ./train.sh
  holdfast run --lock db --read config --sem gpu=4:2 -- ./job.sh
  holdfast run --limiter api=100/1m --key alice -- ./call.sh`,
	})
	m.flags(c.Flags())
	c.Args = func(c *cobra.Command, args []string) error { return checkSplit(c, args, 0) }
	h.expand = func(names []string) (all []string, err error) {
		if h.limiters, err = m.asks(); err != nil {
			return nil, err
		}
		if wants, err = m.parts(names); err != nil {
			return nil, err
		}
		for _, p := range wants {
			all = append(all, p.name)
		}
		return all, nil
	}
	return c
}

func (m *mix) flags(f *pflag.FlagSet) {
	f.BoolVar(&m.shared, "shared", false, "hold the NAMEs as a reader")
	f.Int64VarP(&m.limit, "limit", "n", 0, "hold the NAMEs as semaphores of this limit")
	f.StringArrayVar(&m.locks, "lock", nil, "also hold this lock")
	f.StringArrayVar(&m.reads, "read", nil, "also hold this name as a reader")
	f.StringArrayVar(&m.writes, "write", nil, "also hold this name as the writer")
	f.StringArrayVar(&m.sems, "sem", nil, "also hold this semaphore: NAME=LIMIT or NAME=LIMIT:WEIGHT")
	f.StringArrayVar(&m.limiters, "limiter", nil, "start when this limiter allows it: NAME, NAME=RATE or NAME=RATE:COST, such as api=100/1m")
	f.StringVar(&m.key, "key", "", "the key that the limiters are asked about (that of all together)")
}

// part is one name and what it is held as.
type part struct {
	name string
	want func(s *holdfast.Space, name string) holdfast.Want
}

func wantsOf(s *holdfast.Space, parts []part) []holdfast.Want {
	var wants []holdfast.Want
	for _, p := range parts {
		wants = append(wants, p.want(s, p.name))
	}
	return wants
}

// parts are all that is to be held.
func (m *mix) parts(names []string) ([]part, error) {
	plain, err := m.plain()
	parts := each(names, plain)
	parts = append(parts, each(m.locks, aMutex)...)
	parts = append(parts, each(m.reads, aReader)...)
	parts = append(parts, each(m.writes, aWriter)...)
	for _, text := range m.sems {
		p, wrong := parseSem(text)
		err = errors.Join(err, wrong)
		parts = append(parts, p)
	}
	if len(parts) == 0 && len(m.limiters) == 0 {
		err = errors.New("nothing is named; give NAMEs, --lock, --read, --write, --sem or --limiter")
	}
	if err != nil {
		return nil, &failure{code: exitUsage, err: err, hint: "see holdfast run --help"}
	}
	return parts, nil
}

func each(names []string, want func(*holdfast.Space, string) holdfast.Want) []part {
	var parts []part
	for _, n := range names {
		parts = append(parts, part{n, want})
	}
	return parts
}

// plain is what the NAMEs are held as.
func (m *mix) plain() (func(*holdfast.Space, string) holdfast.Want, error) {
	switch {
	case m.shared && m.limit != 0:
		return nil, errors.New("--shared and -n do not go together")
	case m.limit < 0:
		return nil, fmt.Errorf("the limit %d is negative", m.limit)
	case m.shared:
		return aReader, nil
	case m.limit > 0:
		return aShare(m.limit, 1), nil
	}
	return aMutex, nil
}

func aShare(limit, weight int64) func(*holdfast.Space, string) holdfast.Want {
	return func(s *holdfast.Space, name string) holdfast.Want { return s.Semaphore(name, limit).Want(weight) }
}

// parseSem reads NAME=LIMIT or NAME=LIMIT:WEIGHT; the name may have = in it.
func parseSem(text string) (part, error) {
	at := strings.LastIndexByte(text, '=')
	if at < 1 {
		return part{}, fmt.Errorf("--sem %s: write NAME=LIMIT or NAME=LIMIT:WEIGHT", text)
	}
	first, second, weighted := strings.Cut(text[at+1:], ":")
	limit, err := strconv.ParseInt(first, 10, 64)
	weight := int64(1)
	if weighted && err == nil {
		weight, err = strconv.ParseInt(second, 10, 64)
	}
	if err != nil {
		return part{}, fmt.Errorf("--sem %s: write NAME=LIMIT or NAME=LIMIT:WEIGHT: %w", text, err)
	}
	return part{text[:at], aShare(limit, weight)}, nil
}
