package redishold

import (
	"context"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// Inspect tells the holder of a name, as a majority of the servers knows it.
// Waiters are not known to them. A prefix has every server list its keys, which
// takes time where there are many.
func (r *redlock) Inspect(ctx context.Context, q *driver.InspectRequest) (driver.InspectReply, error) {
	if err := r.begin(ctx); err != nil {
		return driver.InspectReply{}, err
	}
	names := []string{q.Name}
	if q.Prefix {
		var err error
		if names, err = r.names(ctx, q.Name); err != nil {
			return driver.InspectReply{}, err
		}
	}
	listed := q.Max
	if listed <= 0 || listed > maxListed {
		listed = maxListed
	}
	var out driver.InspectReply
	for _, name := range names {
		if q.Prefix && q.After != "" && name <= q.After {
			continue
		}
		if n := len(out.Resources); n == listed {
			out.Next = out.Resources[n-1].Name
			break
		}
		res, err := r.inspect(ctx, name)
		if err != nil {
			return driver.InspectReply{}, err
		}
		if res != nil {
			out.Resources = append(out.Resources, *res)
		}
	}
	return out, nil
}

// inspect is one name; nil: no majority has it.
func (r *redlock) inspect(ctx context.Context, name string) (*driver.Resource, error) {
	v := r.vote(ctx, func(ctx context.Context, rc rueidis.Client) ([]string, error) {
		return lookScript.run(ctx, rc, r.keys(name, "")[:1], nil)
	})
	count, token := map[string]int{}, map[string]driver.Token{}
	for len(v.got) < v.n && v.no < hopeless(v.n) && v.faults < hopeless(v.n) {
		var b ballot
		select {
		case b = <-v.ballots:
		case <-ctx.Done():
			return nil, gaveup.Error(ctx, driver.NotDone)
		}
		if v.count(b); b.reply == nil || b.reply[0] != "ok" {
			continue
		}
		in := reader{rest: b.reply[1:]}
		id, c := in.holder(name)
		count[id]++
		token[id] = max(token[id], c.Token)
		if c.Token = token[id]; count[id] >= majority(v.n) && c.Token > 0 {
			return &driver.Resource{Name: name, Kind: driver.Mutex, Limit: 1, Used: 1, Created: driver.Revision(c.Token), Modified: driver.Revision(c.Token), Holding: 1, Holders: []driver.Claim{c}}, nil
		}
	}
	if v.faults >= hopeless(v.n) {
		return nil, v.verdict(ctx)
	}
	return nil, nil
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// names are those with a prefix that some server has, if a majority answers.
func (r *redlock) names(ctx context.Context, prefix string) ([]string, error) {
	before, after := "{"+r.opts.Prefix+":", "}:lock"
	pattern := globEscaper.Replace(before+prefix) + "*" + globEscaper.Replace(after)
	v := r.vote(ctx, func(ctx context.Context, rc rueidis.Client) ([]string, error) {
		keys, err := scan(ctx, rc, pattern)
		return append([]string{"ok"}, keys...), err
	})
	v.decide(ctx)
	if err := v.verdict(ctx); err != nil {
		return nil, err
	}
	var names []string
	for _, b := range v.got {
		for _, key := range b.reply[min(1, len(b.reply)):] {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(key, before), after))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func scan(ctx context.Context, rc rueidis.Client, pattern string) ([]string, error) {
	var keys []string
	for cursor := uint64(0); ; {
		page, err := rc.Do(ctx, rc.B().Scan().Cursor(cursor).Match(pattern).Count(1000).Build()).AsScanEntry()
		if err != nil {
			return nil, err
		}
		keys = append(keys, page.Elements...)
		if cursor = page.Cursor; cursor == 0 {
			return keys, nil
		}
	}
}
