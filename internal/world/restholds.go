package world

import (
	"context"
	"fmt"
	"time"
)

// path is that of the holds of a kind, and the verbs that take one and give it back.
func (k kind) path() (kind, acquire, release string) {
	switch k {
	case reader, writer:
		return "rwlocks", "acquire", "release"
	case semaphore:
		return "semaphores", "acquire", "release"
	case election:
		return "elections", "campaign", "resign"
	}
	return "locks", "acquire", "release"
}

func (x *rester) acquire(ctx context.Context, w want) (*holding, error) {
	kind, acquire, _ := w.kind.path()
	in, asked := body{"holder_id": x.p.String(), "ttl_ms": x.p.ttl().Milliseconds()}, time.Now()
	switch w.kind {
	case reader:
		in["mode"] = "read"
	case writer:
		in["mode"] = "write"
	case semaphore:
		in["limit"] = limit
	case election:
		in["value"] = "first"
	}
	if w.try {
		in["timeout_ms"] = 0
	}
	got, err := x.post(ctx, "POST", fmt.Sprintf("/v1/%s/%s:%s", kind, w.name, acquire), in, "")
	if err != nil {
		return nil, err
	}
	return x.holding(w, got, asked), nil
}

func (x *rester) holding(w want, got body, asked time.Time) *holding {
	kind, _, release := w.kind.path()
	token := got.number("token")
	do := func(ctx context.Context, verb string, in body) (body, error) {
		in["token"] = token
		return x.post(ctx, "POST", fmt.Sprintf("/v1/%s/%s:%s", kind, w.name, verb), in, "")
	}
	lasts := until(asked, got.number("ttl_ms"))
	g := &holding{token: uint64(token), holds: lasts.holds}
	g.release = func(ctx context.Context) error {
		_, err := do(ctx, release, body{})
		return err
	}
	g.renew = func(ctx context.Context) error {
		asked := time.Now()
		r, err := do(ctx, "renew", body{})
		if err == nil {
			lasts.renewed(asked, r.number("ttl_ms"))
		}
		return err
	}
	switch w.kind {
	case reader:
		g.upgrade = func(ctx context.Context) (*holding, error) {
			asked := time.Now()
			r, err := do(ctx, "upgrade", body{})
			if err != nil {
				return nil, err
			}
			return x.holding(want{kind: writer, name: w.name}, r, asked), nil
		}
	case writer:
		g.downgrade = func(ctx context.Context) error {
			_, err := do(ctx, "downgrade", body{})
			return err
		}
	case election:
		g.proclaim = func(ctx context.Context, value string) error {
			_, err := do(ctx, "proclaim", body{"value": value})
			return err
		}
	}
	return g
}

func (x *rester) put(ctx context.Context, name, value, key string) error {
	_, err := x.post(ctx, "PUT", "/v1/kv/"+name, body{"value": value}, key)
	return err
}

func (x *rester) set(ctx context.Context, name string, value int64) error {
	_, err := x.post(ctx, "POST", "/v1/counters/"+name+":set", body{"value": value}, "")
	return err
}

func (x *rester) swap(ctx context.Context, name string, old, value int64) (bool, error) {
	r, err := x.post(ctx, "POST", "/v1/counters/"+name+":compare-and-set", body{"expected": old, "value": value}, "")
	return r["swapped"] == true, err
}

func (x *rester) reserve(ctx context.Context, name string, n uint64) (uint64, error) {
	r, err := x.post(ctx, "POST", "/v1/sequences/"+name+":reserve", body{"count": n}, "")
	return uint64(r.number("first")), err
}

func (x *rester) countDown(ctx context.Context, name string, count int64) error {
	_, err := x.post(ctx, "POST", "/v1/latches/"+name+":count-down", body{"by": 1, "count": count}, "")
	return err
}

func (x *rester) open(ctx context.Context, name string, count int64) error {
	_, err := x.post(ctx, "POST", "/v1/latches/"+name+":wait", body{"count": count}, "")
	return err
}

func (x *rester) arrive(ctx context.Context, name string, parties int64) error {
	_, err := x.post(ctx, "POST", "/v1/barriers/"+name+":arrive", body{"parties": parties}, "")
	return err
}
