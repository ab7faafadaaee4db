package remote

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/session"
)

// A link that has been asked and was silent for its patience is doubted: other
// nodes are asked whether one of them leads now. Doubt costs a link nothing; each
// time it was wrong the next takes twice as long.
const (
	firstPatience = time.Second // about what an election takes at least
	lastPatience  = 8 * time.Second
)

// pulse is when a link was asked and gave signs of life, in the time of its group.
type pulse struct {
	heard    int64 // last
	asked    int64 // first, since then; 0: it was not
	patience int64
	armed    bool // somebody will call rang
	doubted  bool // since it was heard
	late     bool // and that because it was silent for its patience
}

func newPulse(now int64) pulse { return pulse{heard: now, patience: int64(firstPatience)} }

// sent notes that the link was asked. With arm, rang is to be called after wait.
func (p *pulse) sent(now int64) (wait int64, arm bool) {
	if p.asked == 0 {
		p.asked = now
	}
	if p.armed || p.doubted {
		return 0, false
	}
	p.armed = true
	return max(0, p.asked+p.patience-now), true
}

// answered notes a sign of life, and reports whether there was doubt.
func (p *pulse) answered(now int64) (wrong bool) {
	wrong = p.doubted
	if p.late {
		p.patience = min(2*p.patience, int64(lastPatience))
	}
	p.heard, p.asked, p.doubted, p.late = now, 0, false, false
	return wrong
}

// rang is how long the link may still be silent; 0: it has been so for too long.
func (p *pulse) rang(now int64) (wait int64) {
	return max(0, cmp.Or(p.asked, p.heard)+p.patience-now)
}

// judge ends the watch over a link that was silent for too long, unless it was
// asked or heard since it rang: then it is to ring again after wait. The link is to
// be doubted if somebody waits for an answer.
func (p *pulse) judge(now int64, unanswered bool) (wait int64) {
	if wait = p.rang(now); wait == 0 {
		p.armed, p.late = false, unanswered
		p.doubted = p.doubted || unanswered
	}
	return wait
}

// take is what is to be sent.
func (l *serverLink) take(g *client.SessionMux) (out [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if out, l.out = l.out, nil; len(out) == 0 {
		return nil
	}
	if wait, arm := l.pulse.sent(g.Now()); arm {
		l.watch(g, wait)
	}
	return out
}

func (l *serverLink) watch(g *client.SessionMux, wait int64) {
	time.AfterFunc(time.Duration(wait), func() { l.look(g) })
}

// look sees whether the link is to be doubted.
func (l *serverLink) look(g *client.SessionMux) {
	if l.stream.Context().Err() != nil {
		return
	}
	l.mu.Lock()
	rang := l.pulse.rang(g.Now()) == 0
	l.mu.Unlock()
	unanswered := rang && g.Unanswered() // which may not be asked while l is locked
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.pulse.judge(g.Now(), unanswered || l.pinged); wait > 0 {
		l.watch(g, wait)
	} else if l.pulse.doubted {
		l.doubt()
	}
}

// doubt begins the search for another leader; l is locked.
func (l *serverLink) doubt() {
	select {
	case l.doubted <- struct{}{}:
	default:
	}
}

// suspect doubts the link for a session that cannot wait for its patience, or for
// which it was in vain to ask the others.
func (l *serverLink) suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wide {
		return
	}
	l.wide, l.pulse.doubted = true, true
	l.calmed()
	l.doubt()
}

// calmed ends the search that there is; l is locked.
func (l *serverLink) calmed() {
	if l.calm != nil {
		l.calm()
		l.calm = nil
	}
}

// doubting has calm called at the next sign of life, or when all nodes are to be
// asked, and wide says whether they are; false: there was one.
func (l *serverLink) doubting(calm context.CancelFunc) (wide, doubted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pulse.doubted {
		l.calm = calm
	}
	return l.wide, l.pulse.doubted
}

// alive notes a sign of life.
func (l *serverLink) alive(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pinged, l.wide = false, false
	if l.pulse.answered(now) {
		l.calmed()
	}
}

// ping asks the node for a sign of life, unless it has been asked for one.
func (l *serverLink) ping() {
	l.mu.Lock()
	if l.pinged {
		l.mu.Unlock()
		return
	}
	l.number++
	l.pinged = true
	l.add(&session.Message{Kind: session.KindAttach, Session: l.id, Stream: l.number})
	l.mu.Unlock()
	l.signal()
}
