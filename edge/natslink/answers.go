package natslink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
)

const (
	// answerTime is how long the server has to say that it keeps a state.
	answerTime = 10 * time.Second
	// maxUnanswered bounds the states that are waited for at once; those above are sent without
	// asking for an answer.
	maxUnanswered = 10_000
)

// answers is what the server says of the states that were sent: JetStream answers each of them, that it is
// kept or why not. Without that a stream that refuses them would be noticed by nobody.
type answers struct {
	tell func(error)

	mu      sync.Mutex
	inbox   string // where answers are sent to; "": nobody listens
	last    uint64 // the number of the last state, which ends the subject of its answer
	waiting map[uint64]sentState
	refused map[string]*refusal  // by subject, until a later state of that is kept
	unread  map[string]time.Time // since when no state of the subject came by the feed that was sent
	read    time.Time            // when the feed had brought all that is kept
	within  time.Duration        // answerTime, but in tests
}

// forgotten is why a state that was kept is not.
const forgotten = "the stream forgets them before they are read (max_msgs, max_bytes or max_age)"

type sentState struct {
	subject string
	at      time.Time
}

// refusal is why a state is not kept.
type refusal struct {
	cause    string
	returned bool // by Keep
}

func newAnswers(tell func(error)) *answers {
	return &answers{tell: tell, waiting: map[uint64]sentState{}, refused: map[string]*refusal{}, unread: map[string]time.Time{}, within: answerTime}
}

// begin has answers come to an inbox; "": to none.
func (a *answers) begin(inbox string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inbox = inbox
}

// reply is where the server shall answer a state that is sent to that subject; "": nowhere.
func (a *answers) reply(subject string, now time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inbox == "" || len(a.waiting) >= maxUnanswered {
		return ""
	}
	a.last++
	a.waiting[a.last] = sentState{subject, now}
	if _, ok := a.unread[subject]; !ok {
		a.unread[subject] = now
	}
	return a.inbox + "." + strconv.FormatUint(a.last, 10)
}

// take is an answer of the server.
func (a *answers) take(m *nats.Msg) {
	number := numberOf(m.Subject)
	a.mu.Lock()
	s, ok := a.waiting[number]
	a.mu.Unlock()
	if ok {
		a.note(s.subject, causeOf(m), false)
		a.answered(number)
	}
}

func (a *answers) answered(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, number)
}

// came notes that a state of the subject came by the feed: the stream does not forget it at once.
func (a *answers) came(subject string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unread, subject)
	if r := a.refused[subject]; r != nil && r.cause == forgotten {
		delete(a.refused, subject)
	}
}

// allCame notes that the feed has brought all that is kept.
func (a *answers) allCame(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = now
}

// numberOf is the state that is answered at a subject; 0: none.
func numberOf(reply string) uint64 {
	number, _ := strconv.ParseUint(reply[strings.LastIndexByte(reply, '.')+1:], 10, 64)
	return number
}

// causeOf is why the server does not keep a state; "": it does.
func causeOf(m *nats.Msg) string {
	if len(m.Data) == 0 && m.Header.Get("Status") != "" {
		return "no stream takes them"
	}
	var answer struct {
		Stream string         `json:"stream"`
		Error  *nats.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil || answer.Error == nil && answer.Stream == "":
		return "the server's answer is none of JetStream"
	case answer.Error != nil:
		return answer.Error.Description
	}
	return ""
}

// unsent takes back that an answer is expected; a cause is why no server would take the state.
func (a *answers) unsent(m *nats.Msg, cause string) {
	a.answered(numberOf(m.Reply))
	if cause != "" {
		a.note(m.Subject, cause, true)
	}
}

// watch looks for states that are not answered, until ctx ends.
func (a *answers) watch(ctx context.Context) {
	tick := time.NewTicker(a.within / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			a.overdue(now)
		}
	}
}

// overdue notes states that were not answered in time, and those that were kept and came to nobody.
func (a *answers) overdue(now time.Time) {
	late := a.late(now)
	for _, subject := range late {
		a.note(subject, fmt.Sprintf("no answer within %s", answerTime), false)
	}
	for _, subject := range a.lost(now) {
		a.note(subject, forgotten, false)
	}
}

// late are the subjects of states that were not answered in time, once.
func (a *answers) late(now time.Time) (late []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for number, s := range a.waiting {
		if now.Sub(s.at) >= a.within {
			late = append(late, s.subject)
			delete(a.waiting, number)
		}
	}
	return late
}

// lost are the subjects of states that were answered, and did not come although the feed has brought all since.
func (a *answers) lost(now time.Time) (lost []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for subject, since := range a.unread {
		if now.Sub(since) >= a.within && a.read.Sub(since) >= a.within/2 {
			lost = append(lost, subject)
			delete(a.unread, subject)
		}
	}
	return lost
}

// forget has what was sent before be answered by nobody: the connection was cut.
func (a *answers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.waiting)
	clear(a.unread)
}

// note keeps what became of the last state of a subject. A cause is told when it is the first state
// that is refused for it. A state that is kept may still be forgotten as those before.
func (a *answers) note(subject, cause string, returned bool) {
	a.mu.Lock()
	fresh := cause != "" && !a.has(cause)
	r := a.refused[subject]
	switch {
	case cause != "":
		a.refused[subject] = &refusal{cause, returned}
		delete(a.unread, subject)
	case r != nil && r.cause != forgotten:
		delete(a.refused, subject)
	}
	a.mu.Unlock()
	if fresh {
		a.tell(unkept(cause))
	}
}

// has reports that a state is refused for that cause; mu is held.
func (a *answers) has(cause string) bool {
	for _, r := range a.refused {
		if r.cause == cause {
			return true
		}
	}
	return false
}

// before is why the state that was last sent to a subject was not kept, once.
func (a *answers) before(subject string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.refused[subject]
	if r == nil || r.returned {
		return nil
	}
	r.returned = true
	return unkept(r.cause)
}

// err is why states are not kept now; nil: all that were answered are.
func (a *answers) err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.refused) == 0 {
		return nil
	}
	causes := slices.SortedFunc(maps.Values(a.refused), func(x, y *refusal) int { return strings.Compare(x.cause, y.cause) })
	return unkept(causes[0].cause)
}

func unkept(cause string) error {
	return fmt.Errorf("natslink: states are not kept, so that nodes which start or were cut off do not learn all: %s; see the limits of the stream, the server and its disk: %w", cause, driver.ErrUnavailable)
}

// tooLarge says that a state is more than the server takes in one message.
func tooLarge(err error, most int64) string {
	if !errors.Is(err, nats.ErrMaxPayload) {
		return ""
	}
	return fmt.Sprintf("one is larger than the server's max_payload of %d bytes", most)
}
