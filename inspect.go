package holdfast

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Inspect tells all holders and all waiters of a name, with queue positions. A name that nobody holds may be unknown to the backend: its Kind is then 0.
// More than a thousand are read page by page: of what changes meanwhile some may be
// missing.
func (s *Space) Inspect(ctx context.Context, name string) (Resource, error) {
	full := s.prefix + name
	err := checkName(full, s.r.maxName())
	whole, r := Resource{Name: full}, driver.InspectRequest{Name: full}
	for more := true; more; more = r.After != "" {
		var page driver.InspectReply
		if page, err = s.page(ctx, &r, err); err != nil {
			return Resource{}, s.r.wrap(ctx, "inspect", full, "", err)
		}
		if r.After = page.Next; len(page.Resources) > 0 {
			whole = joined(whole, page.Resources[0])
		}
	}
	whole.More = false
	return s.relativeResource(whole), nil
}

// InspectAll tells about several names, at most 1,000, in the order of the names; one that
// nobody holds may be unknown to the backend: its Kind is then 0. Of a name with many
// holders and waiters it may tell only the first, and says so by More. On backends with the
// feature "atomic-all" all is as of one revision; elsewhere the names are read one after
// the other, and the revision is 0.
func (s *Space) InspectAll(ctx context.Context, names ...string) ([]Resource, Revision, error) {
	full := make([]string, len(names))
	var err error
	if len(names) > maxInspectAll {
		err = invalid("InspectAll of %d names: at most %d are allowed", len(names), maxInspectAll)
	}
	for i, name := range names {
		full[i] = s.prefix + name
		err = firstError(err, checkName(full[i], s.r.maxName()))
	}
	if len(names) == 0 || err != nil {
		return nil, 0, wrap("inspect", "", err)
	}
	if !s.r.info.Features[driver.FeatureAtomicAll] {
		return s.inspectEach(ctx, names)
	}
	reply, err := s.page(ctx, &driver.InspectRequest{Names: full}, nil)
	if err != nil {
		return nil, 0, s.r.wrap(ctx, "inspect", full[0], "", err)
	}
	found := map[string]Resource{}
	for _, r := range reply.Resources {
		found[r.Name] = r
	}
	all := make([]Resource, len(full))
	for i, name := range full {
		r, ok := found[name]
		if !ok {
			r.Name = name
		}
		all[i] = s.relativeResource(r)
	}
	return all, reply.Revision, nil
}

const maxInspectAll = 1000

func (s *Space) inspectEach(ctx context.Context, names []string) (all []Resource, _ Revision, _ error) {
	for _, name := range names {
		r, err := s.Inspect(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, r)
	}
	return all, 0, nil
}

// joined is what two pages tell of a resource; the second is the newer one.
func joined(whole, page Resource) Resource {
	page.Holders, page.Waiters = append(whole.Holders, page.Holders...), append(whole.Waiters, page.Waiters...)
	return page
}

// List yields all names that begin with prefix and are held or awaited, or kept
// as semaphores and latches are, in order of name. Counters and sequences are among them on mem:, embed:, holdfast:
// and file:, and on no other backend. It reads page by page: what
// changes meanwhile may be seen before or after. Of a name with many holders and
// waiters it may tell only the first, and says so by More: Inspect tells all. An
// error is the last pair.
func (s *Space) List(ctx context.Context, prefix string) iter.Seq2[Resource, error] {
	full := s.prefix + prefix
	return func(yield func(Resource, error) bool) {
		err := checkPrefix(full, s.r.maxName())
		r := driver.InspectRequest{Name: full, Prefix: true}
		for more := true; more; more = r.After != "" {
			var page driver.InspectReply
			if page, err = s.page(ctx, &r, err); err != nil {
				yield(Resource{}, s.r.wrap(ctx, "list", full, "", err))
				return
			}
			for _, res := range page.Resources {
				if !yield(s.relativeResource(res), nil) {
					return
				}
			}
			r.After = page.Next
		}
	}
}

// page asks for one page, unless there is an error already.
func (s *Space) page(ctx context.Context, r *driver.InspectRequest, err error) (driver.InspectReply, error) {
	if err := firstError(err, s.r.ready(ctx, "")); err != nil {
		return driver.InspectReply{}, err
	}
	page, err := s.r.d.Inspect(ctx, r)
	for i := range page.Resources {
		sayLimit(&page.Resources[i])
	}
	return page, err
}

// sayLimit sets the limit that a lock has by its kind, of which not every engine keeps a number: 1, or 0 for readers
// without number.
func sayLimit(res *Resource) {
	switch res.Kind {
	case driver.Mutex, driver.Election:
		res.Limit = 1
	case driver.RWMutex:
		res.Limit = 0
	}
}

func (s *Space) relativeResource(res Resource) Resource {
	if s.prefix == "" {
		return res
	}
	res.Name = trim(res.Name, s.prefix)
	res.Holders, res.Waiters = s.relativeClaims(res.Holders), s.relativeClaims(res.Waiters)
	return res
}

func (s *Space) relativeClaims(claims []Claim) []Claim {
	own := slices.Clone(claims)
	for i := range own {
		own[i].Name = trim(own[i].Name, s.prefix)
	}
	return own
}

// ForceOption is [ForceNow].
type ForceOption interface{ force(*driver.ForceRequest) }

type forceFunc func(*driver.ForceRequest)

func (f forceFunc) force(r *driver.ForceRequest) { f(r) }

// ForceNow frees the name at once, while its holder may still believe in it: from
// then on only fencing protects.
func ForceNow() ForceOption { return forceFunc(func(r *driver.ForceRequest) { r.Now = true }) }

// ForceRelease ends another's hold. The token says which one, so that the next
// holder is never hit: take it from Inspect, List or an ErrHeld. The holder is told,
// and the name is free when it has confirmed that by Release, as Do does when its function
// returns, or ends its Space; of a holder that does not, when it cannot believe in the hold
// any more, which takes at most until. On postgres: its program gives the name back as soon
// as it was told.
func (s *Space) ForceRelease(ctx context.Context, name string, token Token, opts ...ForceOption) (until time.Duration, err error) {
	full := s.prefix + name
	err = firstError(checkName(full, s.r.maxName()), checkToken(token), s.r.ready(ctx, driver.FeatureForce))
	if err != nil {
		return 0, wrap("force release", full, err)
	}
	r := &driver.ForceRequest{Name: full, Token: token}
	for o := range given(opts) {
		o.force(r)
	}
	reply, err := s.r.d.Force(ctx, r)
	return reply.Until, s.r.wrap(ctx, "force release", full, driver.FeatureForce, err)
}

func checkToken(t Token) error {
	if t == 0 || t >= maxToken {
		return invalid("the token %d is none; Inspect tells the holder's", t)
	}
	return nil
}
