package drivertest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// toy is one client of an engine.
type toy struct {
	driver.Base
	e    *engine
	info driver.Info

	mu       sync.Mutex
	sessions map[driver.Spec]*session
	own      []*session
	stopped  bool          // no keepalives
	cut      chan struct{} // open: every call waits for its context
	closed   chan struct{}
}

func newToy(e *engine) *toy {
	t := &toy{e: e, sessions: map[driver.Spec]*session{}, closed: make(chan struct{})}
	features := map[driver.Feature]bool{}
	for _, f := range allFeatures {
		features[f] = !(e.has("declares too little") && f == driver.FeatureFIFO) && !e.has("declares nothing")
	}
	t.info = driver.Info{Scheme: "holdfast", MinTTL: time.Second, MaxTTL: 24 * time.Hour, Features: features}
	if e.has("long names") {
		t.info.MaxName = 4096
	}
	return t
}

func (t *toy) Info() driver.Info { return t.info }

// reach waits behind a cut link.
func (t *toy) reach(ctx context.Context) error {
	t.mu.Lock()
	cut := t.cut
	t.mu.Unlock()
	if cut == nil {
		return nil
	}
	if t.e.has("deaf to cancel") {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-cut:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cutOff makes the client's calls wait.
func (t *toy) cutOff() (mend func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cut := make(chan struct{})
	t.cut = cut
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.cut = nil
		close(cut)
	})
}

// stall stops the client's keepalives.
func (t *toy) stall() (resume func()) {
	set := func(stopped bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stopped = stopped
	}
	set(true)
	return func() {
		set(false)
		t.mu.Lock()
		own := slices.Clone(t.own)
		t.mu.Unlock()
		for _, l := range own {
			t.beat(l) // as a program that goes on finds its timers overdue
		}
	}
}

func (t *toy) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := t.reach(ctx); err != nil {
		return driver.Grant{}, err
	}
	if len(r.Wants) > 1 && t.e.has("takes in the order given") {
		return t.acquireEach(ctx, r)
	}
	l, err := t.sessionOf(ctx, r)
	if err != nil {
		return driver.Grant{}, err
	}
	c := &toyClaim{Request: *r, session: l, ctx: ctx, since: time.Now(), ready: make(chan struct{})}
	c.Wants = slices.Clone(r.Wants)
	for i := range c.Wants {
		c.Wants[i].Name = t.e.spell(c.Wants[i].Name)
	}
	if t.e.has("takes the first only") {
		c.Wants = c.Wants[:1]
	}
	return t.obtain(ctx, c)
}

// acquireEach takes one name after the other and keeps what it has.
func (t *toy) acquireEach(ctx context.Context, r *driver.Request) (g driver.Grant, err error) {
	for _, w := range r.Wants {
		one := *r
		one.Wants = []driver.Want{w}
		if g, err = t.Acquire(ctx, &one); err != nil {
			return g, err
		}
	}
	return g, nil
}

// obtain queues c and waits for its end.
func (t *toy) obtain(ctx context.Context, c *toyClaim) (driver.Grant, error) {
	var err error
	place := 0
	t.e.do(func() { place, err = t.enter(c) })
	if err != nil {
		return driver.Grant{}, err
	}
	if c.Waiting != nil && (place > 0 || t.e.has("always told to wait")) {
		if t.e.has("wrong place") {
			place++
		}
		c.Waiting(place)
	}
	if err := t.await(ctx, c); err != nil {
		return driver.Grant{}, err
	}
	return t.grantOf(ctx, c), nil
}

// enter puts c into the queue; its place is 0 if it is granted.
func (t *toy) enter(c *toyClaim) (int, error) {
	e := t.e
	if err := e.admit(c); err != nil {
		return 0, err
	}
	e.claims = append(e.claims, c)
	e.settle()
	if c.Try && c.token == 0 {
		e.drop(c)
		err := e.held(c)
		switch {
		case e.has("try queues"):
			e.claims = append(e.claims, c)
		case e.has("keeps what it got"):
			e.keepSome(c)
		}
		return 0, err
	}
	if c.token != 0 {
		return 0, nil
	}
	_, waiters := e.split(c.Wants[0].Name)
	return max(slices.Index(waiters, c)+1, 1), nil
}

// keepSome makes c a hold of the names that are free.
func (e *engine) keepSome(c *toyClaim) {
	c.Wants = slices.DeleteFunc(c.Wants, func(w driver.Want) bool {
		holders, _ := e.split(w.Name)
		return len(holders) > 0
	})
	e.rev++
	c.token = driver.Token(e.rev)
	e.claims = append(e.claims, c)
}

// await waits for the claim's grant or the context's end.
func (t *toy) await(ctx context.Context, c *toyClaim) error {
	heard := ctx
	if t.e.has("deaf to cancel") {
		heard = context.WithoutCancel(ctx)
	}
	select {
	case <-c.ready:
		return c.err
	case <-t.closed:
		return refusal(driver.ErrClosed, "the client is closed")
	case <-heard.Done():
	}
	passed := false
	t.e.do(func() {
		passed = c.token != 0 && c.Wants[0].Kind == driver.Barrier
		t.withdraw(c)
	})
	switch {
	case passed:
		return nil
	case t.e.has("wrong error on cancel"):
		return refusal(driver.ErrHeld, "it took too long")
	case t.e.has("unavailable past the deadline"):
		return refusal(driver.ErrUnavailable, "no connection")
	}
	return &driver.Error{Kind: ctx.Err(), Outcome: driver.NotDone}
}

func (t *toy) withdraw(c *toyClaim) {
	switch {
	case t.e.has("cancel forgets"):
	case c.upgrade != nil && t.e.has("cancelled upgrade drops"):
		t.e.drop(c.upgrade)
		t.e.drop(c)
	default:
		t.e.drop(c)
	}
}

// grantOf is what the library is given.
func (t *toy) grantOf(ctx context.Context, c *toyClaim) driver.Grant {
	h := &handle{t: t, c: c, ctx: ctx}
	g := driver.Grant{Token: c.token, Session: c.session.shared, Handle: h}
	if c.MaxHold > 0 && !t.e.has("max-hold untold") {
		g.Deadline = c.end.Add(-knownBefore)
	}
	if len(c.Wants) > 1 && t.e.has("a token a name") {
		for i := range c.Wants {
			g.Tokens = append(g.Tokens, c.token+driver.Token(i))
		}
	}
	return g
}

// knownBefore is how much sooner a holder ends a hold than the engine does.
const knownBefore = 10 * time.Millisecond

// sessionOf is the session of a request: its own, or the client's for its Spec.
func (t *toy) sessionOf(ctx context.Context, r *driver.Request) (*session, error) {
	if r.Session != nil {
		return t.e.sessionByID(r.Session.ID)
	}
	if err := t.fit(&r.Spec); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.sessions[r.Spec]; l != nil && l.shared.Err() == nil {
		return l, nil
	}
	l := t.open(r.Spec)
	t.sessions[r.Spec] = l
	return l, nil
}

// fit refuses a policy that the toy does not declare.
func (t *toy) fit(s *driver.Spec) error {
	if s.Policy != driver.AtDeadline && !t.info.Features[driver.FeatureReclaim] {
		return errors.ErrUnsupported
	}
	return nil
}

// open opens a session; t.mu is held.
func (t *toy) open(spec driver.Spec) *session {
	sent := driver.Now()
	l := &session{spec: spec, of: t}
	_, _ = rand.Read(l.id[:])
	l.shared = driver.NewSession(l.id, spec)
	t.e.do(func() {
		l.deadline = time.Now().Add(spec.TTL)
		t.e.sessions[l.id] = l
	})
	t.renewed(l, sent, spec.TTL)
	t.own = append(t.own, l)
	if !spec.Manual && !t.e.has("never renews") {
		l.timer = time.AfterFunc(spec.TTL/3, func() { t.beat(l) })
	}
	return l
}

func (t *toy) renewed(l *session, sent time.Time, ttl time.Duration) {
	if t.e.has("deadline too late") {
		sent = sent.Add(time.Hour)
	}
	l.shared.Extend(sent, ttl)
}

// beat is one keepalive.
func (t *toy) beat(l *session) {
	t.mu.Lock()
	stopped := t.stopped
	t.mu.Unlock()
	switch {
	case stopped:
	case l.shared.Err() != nil && !t.e.has("the dead are renewed"):
		t.e.do(func() { t.e.endSession(l, true) })
	default:
		_ = t.keep(l, l.spec.TTL)
	}
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	if !l.dead && l.timer != nil {
		l.timer.Reset(l.spec.TTL / 3)
	}
}

func (t *toy) keep(l *session, ttl time.Duration) error {
	sent, err := driver.Now(), error(nil)
	t.e.do(func() {
		end := time.Now().Add(ttl)
		switch {
		case l.dead:
			err = refusal(driver.ErrLost, "the session has ended")
		case t.e.has("keep forgets"):
		case end.After(l.deadline) || t.e.has("keep moves back"):
			l.deadline = end
		}
	})
	if err == nil {
		t.renewed(l, sent, ttl)
	}
	return err
}

func (e *engine) sessionByID(id driver.SessionID) (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.sessions[id]; l != nil {
		return l, nil
	}
	return nil, refusal(driver.ErrLost, "the session has ended")
}

func (t *toy) OpenSession(ctx context.Context, s driver.Spec) (*driver.Session, error) {
	if err := t.reach(ctx); err != nil {
		return nil, err
	}
	if err := t.fit(&s); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open(s).shared, nil
}

func (t *toy) KeepSession(ctx context.Context, l *driver.Session, ttl time.Duration) error {
	if err := t.reach(ctx); err != nil {
		return err
	}
	own, err := t.e.sessionByID(l.ID)
	if err != nil {
		return err
	}
	if ttl == 0 {
		ttl = own.spec.TTL
	}
	return t.keep(own, ttl)
}

func (t *toy) EndSession(ctx context.Context, l *driver.Session) error {
	own, err := t.e.sessionByID(l.ID)
	if err != nil {
		return nil
	}
	t.e.do(func() {
		t.e.endSession(own, false)
		if t.e.has("revoke ends all of the client") {
			for _, other := range t.own {
				t.e.endSession(other, false)
			}
		}
	})
	return nil
}

func (t *toy) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	id := r.ID
	l, err := t.e.sessionByID(id)
	if err != nil {
		return driver.SessionInfo{}, err
	}
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	info := driver.SessionInfo{ID: id, TTL: l.spec.TTL, ExpiresIn: time.Until(l.deadline), Owner: l.spec.Owner, Meta: l.spec.Meta}
	for _, c := range t.e.claims {
		for _, w := range c.Wants {
			switch {
			case c.session != l:
			case c.token != 0:
				info.Names = append(info.Names, w.Name)
			case !t.e.has("no waits told"):
				info.Waits = append(info.Waits, w.Name)
			}
		}
	}
	for name, k := range t.e.keys {
		if k.Session == id {
			info.Keys = append(info.Keys, name)
		}
	}
	t.e.cutInfo(r, &info)
	return info, nil
}

// cutInfo leaves of info what a request asks for: one list after the other.
func (e *engine) cutInfo(r *driver.SessionInfoRequest, info *driver.SessionInfo) {
	skip, _ := strconv.Atoi(r.After)
	left := r.Max
	if left == 0 {
		left = 1 << 30
	}
	told := 0
	for _, list := range []*[]string{&info.Names, &info.Waits, &info.Keys} {
		slices.Sort(*list)
		n := min(skip, len(*list))
		*list, skip = (*list)[n:], skip-n
		if told += n; len(*list) > left {
			*list = (*list)[:left]
			info.Next = "more"
		}
		left, told = left-len(*list), told+len(*list)
	}
	if info.Next != "" && !e.has("session cut") {
		info.Next = strconv.Itoa(told)
	} else {
		info.Next = ""
	}
}

func (t *toy) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	if err := t.reach(ctx); err != nil {
		return driver.InspectReply{}, err
	}
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	reply := driver.InspectReply{Revision: t.e.rev}
	for _, name := range r.Names {
		if res := t.e.resource(t.e.spell(name)); res.Kind != 0 || len(res.Holders) > 0 {
			reply.Resources = append(reply.Resources, res)
		}
	}
	if len(r.Names) > 0 {
		return reply, nil
	}
	if !r.Prefix {
		if res := t.e.resource(t.e.spell(r.Name)); res.Kind != 0 || len(res.Holders) > 0 {
			reply.Next = t.e.cutClaims(r, &res)
			reply.Resources = append(reply.Resources, res)
		}
		return reply, nil
	}
	for _, name := range t.e.names() {
		beyond := name > r.After || name == r.After && t.e.has("names repeat")
		if (strings.HasPrefix(name, r.Name) || t.e.has("prefix ignored")) && beyond {
			reply.Resources = append(reply.Resources, t.e.resource(name))
		}
	}
	most := r.Max
	if most == 0 {
		most = 100
	}
	if len(reply.Resources) > most {
		reply.Resources = reply.Resources[:most]
		if !t.e.has("one page") {
			reply.Next = reply.Resources[most-1].Name
		}
	}
	return reply, nil
}

// cutClaims leaves of a resource the claims that a request asks for, and is where
// the rest goes on.
func (e *engine) cutClaims(r *driver.InspectRequest, res *driver.Resource) (next string) {
	skip, _ := strconv.Atoi(r.After)
	all := slices.Concat(res.Holders, res.Waiters)
	end := len(all)
	if r.Max > 0 && skip+r.Max < end {
		end = skip + r.Max
		if next = strconv.Itoa(end); e.has("claims cut") {
			next = ""
		}
		if e.has("a claim skipped") {
			next = strconv.Itoa(end + 1)
		}
	}
	res.Holding, res.Waiting = len(res.Holders), len(res.Waiters)
	res.Holders, res.Waiters = nil, nil
	for i, c := range all {
		switch {
		case i < skip || i >= end:
		case i < res.Holding:
			res.Holders = append(res.Holders, c)
		default:
			res.Waiters = append(res.Waiters, c)
		}
	}
	return next
}

// names are those that are held or awaited, and latches, in order.
func (e *engine) names() []string {
	set := map[string]bool{}
	for _, c := range e.claims {
		for _, w := range c.Wants {
			set[w.Name] = true
		}
	}
	for o := range e.objects {
		if o.kind == driver.Latch {
			set[o.name] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func (t *toy) Force(ctx context.Context, r *driver.ForceRequest) (driver.ForceReply, error) {
	reply, err := driver.ForceReply{}, error(nil)
	t.e.do(func() { reply, err = t.e.force(r) })
	return reply, err
}

func (e *engine) force(r *driver.ForceRequest) (driver.ForceReply, error) {
	holders, _ := e.split(e.spell(r.Name))
	i := slices.IndexFunc(holders, func(c *toyClaim) bool { return c.token == r.Token || e.has("force by name") })
	if i < 0 {
		if e.has("force by name") {
			return driver.ForceReply{}, nil
		}
		return driver.ForceReply{}, refusal(fs.ErrNotExist, "nobody holds it with the token %d", r.Token)
	}
	c, why := holders[i], errors.New("it was forced out")
	if e.has("lost without a reason") {
		why = nil
	}
	if lost := c.Lost; !e.has("loss untold") && !e.has("forced untold") {
		e.tell = append(e.tell, func() { lost(why) })
	}
	if r.Now && !e.has("now is later") || e.has("forced untold") {
		e.free(c, false, nil)
		return driver.ForceReply{}, nil
	}
	c.until = c.session.deadline
	return driver.ForceReply{Until: time.Until(c.until)}, nil
}

func (t *toy) Ping(ctx context.Context) error {
	if t.e.has("ping fails") {
		return refusal(driver.ErrUnavailable, "not today")
	}
	return t.reach(ctx)
}

func (t *toy) Close(context.Context) error {
	close(t.closed)
	if t.e.has("close forgets") {
		return nil
	}
	t.e.do(func() {
		for _, l := range t.e.sessions {
			if l.of == t || t.e.has("close ends all") {
				t.e.endSession(l, false)
				end := l.shared
				t.e.tell = append(t.e.tell, func() { end.End(driver.ErrClosed) })
			}
		}
	})
	return nil
}
